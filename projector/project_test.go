package projector

import (
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

func TestOneLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.project()
	w.append(&ledger.Rules{Rules: 1})
	w.append(echoKind())
	req := &ledger.Request{Owner: "acme", Key: "order-17", Kind: "echo", Input: []byte(`{"b":1.0,"a":[1e2]}`)}
	seq := w.append(req)
	w.caughtUp(seq + 1) // the start follows
	m, err := w.stream.GetMsg(w.ctx(), seq+1)
	require.NoError(t, err)
	start, err := ledger.ParseStart("primary", m.Data)
	require.NoError(t, err)
	require.Equal(t, string(req.Input), string(start.Input), "the input is verbatim")
	w.append(&ledger.Claim{Job: start.Job, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: "0123456789abcdef", Worker: "w", StartSeq: seq + 1})
	seq = w.append(&ledger.Completion{Job: start.Job, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: "0123456789abcdef",
		Outcome: ledger.OutcomeSucceeded, Result: []byte(`{"ok":true}`)})
	w.caughtUp(seq)
	j, err := NewQueries(w.pool).Job(w.ctx(), start.Job)
	require.NoError(t, err)
	require.Equal(t, ledger.JobSucceeded, j.State)
	require.Equal(t, `{"ok": true}`, string(j.Result))
	require.Len(t, j.Attempts, 1)
	require.Equal(t, ledger.AttemptSucceeded, j.Attempts[0].State)
	require.Equal(t, []uint64{3, seq}, j.Seqs)
	w.verify()
}
