package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// badBodies are requests that cannot be read, with the reason that they are
// answered with.
var badBodies = map[string]struct{ body, reason string }{
	"nothing":                  {``, "bad_entry"},
	"prose":                    {`please pay`, "bad_entry"},
	"binary":                   {"\x00\x01\xff\xfe", "bad_entry"},
	"half":                     {`{"v":1,"owner":"acme","key":"bad","kind":"pay","inp`, "bad_entry"},
	"a list":                   {`[{"v":1}]`, "bad_entry"},
	"null":                     {`null`, "bad_entry"},
	"two values":               {order("acme", "bad", "answer") + order("acme", "bad", "answer"), "bad_entry"},
	"invalid UTF-8":            {"{\"v\":1,\"owner\":\"acme\",\"key\":\"bad\",\"kind\":\"pay\",\"input\":\"\xff\"}", "bad_entry"},
	"a nul":                    {`{"v":1,"owner":"acme","key":"bad","kind":"pay","input":"\u0000"}`, "bad_entry"},
	"a lone surrogate":         {`{"v":1,"owner":"acme","key":"bad","kind":"pay","input":"\ud800"}`, "bad_entry"},
	"a member twice":           {`{"v":1,"owner":"acme","key":"bad","kind":"pay","input":1,"input":2}`, "bad_entry"},
	"an unknown member":        {`{"v":1,"owner":"acme","key":"bad","kind":"pay","input":1,"inputs":2}`, "bad_entry"},
	"too deep":                 {`{"v":1,"owner":"acme","key":"bad","kind":"pay","input":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "bad_entry"},
	"no version":               {`{"owner":"acme","key":"bad","kind":"pay","input":1}`, "bad_entry"},
	"a later version":          {`{"v":7,"owner":"acme","key":"bad","kind":"pay","input":1}`, "unsupported_version"},
	"no owner":                 {`{"v":1,"key":"bad","kind":"pay","input":1}`, "bad_entry"},
	"an empty key":             {`{"v":1,"owner":"acme","key":"","kind":"pay","input":1}`, "bad_entry"},
	"a key with a space after": {`{"v":1,"owner":"acme","key":"bad ","kind":"pay","input":1}`, "bad_entry"},
	"a long key":               {`{"v":1,"owner":"acme","key":"` + strings.Repeat("k", 256) + `","kind":"pay","input":1}`, "bad_entry"},
	"a number for an owner":    {`{"v":1,"owner":1,"key":"bad","kind":"pay","input":1}`, "bad_entry"},
	"no kind":                  {`{"v":1,"owner":"acme","key":"bad","input":1}`, "bad_entry"},
	"a kind's bad name":        {`{"v":1,"owner":"acme","key":"bad","kind":"Pay!","input":1}`, "bad_entry"},
	"no input":                 {`{"v":1,"owner":"acme","key":"bad","kind":"pay"}`, "bad_entry"},
	"no time":                  {`{"v":1,"owner":"acme","key":"bad","kind":"pay","input":1,"run_at":"tomorrow"}`, "bad_entry"},
	"no duration":              {`{"v":1,"owner":"acme","key":"bad","kind":"pay","input":1,"delay":"soon"}`, "bad_entry"},
	"too large":                {order("acme", "bad", strings.Repeat("x", ledger.MaxRequestBytes)), "too_large"},
	"large and unreadable":     {strings.Repeat("{", ledger.MaxRequestBytes-1), "bad_entry"},
}

func TestPlainBadBodiesStopNothing(t *testing.T) {
	t.Parallel()
	w, main, c, p := plainWorld(t)
	n := 0
	for name, bad := range badBodies {
		n++
		d := p.decided(bad.body)
		w.is(d, "malformed", bad.reason)
		kept := bad.body[:min(len(bad.body), ledger.RejectionRawBytes)]
		require.Equal(t, 1, w.number(`SELECT count(*) FROM ledger.rejections WHERE seq = $1 AND entry = 'job.request'
			AND decision = 'malformed' AND reason = $2 AND detail <> '' AND coalesce(raw, '') = $3`, d.Seq, bad.reason, []byte(kept)), name)

		// What comes right after it runs.
		w.is(p.decided(order("acme", "after "+name, "answer")), "accepted", "")
	}
	w.is(p.decided(`{"v":1,"owner":"acme","key":"bad","kind":"nothing","input":1}`), "refused", "unknown_kind")
	w.is(p.decided(`{"v":1,"owner":"acme","key":"bad","kind":"pay","input":1,"provider":"nobody"}`), "refused", "unknown_provider")

	for name := range badBodies {
		c.finished(c.jobID("after "+name), "succeeded")
	}
	require.Equal(t, n, main.count(""))
	require.Equal(t, n, w.number("SELECT count(*) FROM ledger.jobs"))
	require.Equal(t, n+2, w.number("SELECT count(*) FROM ledger.rejections"))
	// The key of all the bad ones is still free.
	w.is(p.decided(order("acme", "bad", "answer")), "accepted", "")
	c.finished(c.jobID("bad"), "succeeded")
	w.verify()
}

// A body beyond what the stream takes is not stored, and its sender is told.
func TestPlainBodiesThatTheStreamRefuses(t *testing.T) {
	t.Parallel()
	w, _, c, p := plainWorld(t)
	before := w.streamEnd()
	limit := int(p.nc.MaxPayload())
	_, err := p.js.PublishMsg(w.ctx(), &nats.Msg{Subject: p.subject, Data: []byte(strings.Repeat("x", limit+1))})
	require.ErrorIs(t, err, nats.ErrMaxPayload)
	_, err = p.js.PublishMsg(w.ctx(), &nats.Msg{Subject: p.subject, Data: []byte(strings.Repeat("x", limit)), Header: nats.Header{"Traceparent": {"x"}}})
	require.Error(t, err, "the headers count as well")
	require.Equal(t, before, w.streamEnd())

	// Nor does a subject that is no entry's reach the stream.
	_, err = p.js.PublishMsg(w.ctx(), nats.NewMsg(fmt.Sprintf("%s.job.requests", w.prefix)))
	require.Error(t, err)
	require.Equal(t, before, w.streamEnd())
	w.is(p.decided(order("acme", "order", "answer")), "accepted", "")
	c.finished(c.jobID("order"), "succeeded")
	w.verify()
}
