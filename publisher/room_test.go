package publisher_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/stream"
	"jobledger/internal/testenv"
	"jobledger/ledger"
	"jobledger/publisher"
)

// padded is a request of about the given size.
func padded(key string, size int) ledger.Message {
	input := `{"pad":"` + strings.Repeat("x", size) + `"}`
	return (&ledger.Request{Owner: "acme", Key: key, Kind: "echo", Input: []byte(input)}).Message()
}

// completion is an entry that is never refused for the stream's fill.
func completion(n int) ledger.Message {
	return ledger.Message{Subject: "attempt.complete.p", Data: fmt.Appendf(nil, `{"n":%d}`, n)}
}

// limited makes a stream with a limit of bytes and an Appender on it.
func limited(t *testing.T, maxBytes int64, o publisher.Options) (js jetstream.JetStream, name, prefix string, a *publisher.Appender) {
	t.Helper()
	js, name, prefix = testenv.Stream(t)
	limit(t, js, name, prefix, maxBytes)
	o.Stream, o.SubjectPrefix = name, prefix
	return js, name, prefix, newAppender(t, js.Conn(), o)
}

func limit(t *testing.T, js jetstream.JetStream, name, prefix string, maxBytes int64) {
	t.Helper()
	_, err := js.UpdateStream(testContext(t), stream.Config(name, prefix, 1, maxBytes))
	require.NoError(t, err)
}

// fill appends requests until one is refused, and returns that error.
func fill(t *testing.T, a *publisher.Appender, size int) error {
	t.Helper()
	for i := range 10_000 {
		if _, err := a.Append(testContext(t), padded(fmt.Sprint(i), size), ""); err != nil {
			return err
		}
	}
	t.Fatal("10,000 requests were taken")
	return nil
}

// requireFull checks that nothing was stored because there was no room.
func requireFull(t *testing.T, err error) *publisher.FullError {
	t.Helper()
	require.ErrorIs(t, err, publisher.ErrFull)
	require.ErrorIs(t, err, publisher.ErrNotAppended)
	var full *publisher.FullError
	require.ErrorAs(t, err, &full)
	return full
}

func TestRequestsAreRefusedWhileTheRestStillFits(t *testing.T) {
	t.Parallel()
	const maxBytes = 256 << 10
	js, name, prefix, a := limited(t, maxBytes, publisher.Options{FillAge: time.Millisecond})
	full := requireFull(t, fill(t, a, 1000))
	require.EqualValues(t, maxBytes, full.Limit)
	s, err := js.Stream(testContext(t), name)
	require.NoError(t, err)
	require.InDelta(t, maxBytes*publisher.RequestFillPercent/100, s.CachedInfo().State.Bytes, 5000)

	for i := range 20 { // what is under way still ends
		_, err := a.Append(testContext(t), completion(i), "")
		require.NoError(t, err)
	}
	_, err = a.Append(testContext(t), padded("again", 1000), "")
	requireFull(t, err)
	limit(t, js, name, prefix, 2*maxBytes)
	testenv.Eventually(t, testTimeout, func() (bool, string) {
		_, err := a.Append(testContext(t), padded("again", 1000), "")
		return err == nil, fmt.Sprint("there is room again, but: ", err)
	})
}

// What is refused is refused by knowledge that is new: whoever has made room need
// not wait until somebody has noticed.
func TestNobodyIsRefusedByWhatWas(t *testing.T) {
	t.Parallel()
	const maxBytes, patience = 256 << 10, time.Second // for an answer
	js, name, prefix, a := limited(t, maxBytes, publisher.Options{FillAge: time.Nanosecond})
	requireFull(t, fill(t, a, 1000))
	limit(t, js, name, prefix, 2*maxBytes)
	began := time.Now()
	if _, err := a.Append(testContext(t), padded("again", 50_000), ""); err != nil {
		requireFull(t, err)
		require.GreaterOrEqual(t, time.Since(began), patience, "there was room, and it was not asked for")
	}
}

// Between two looks at the stream an Appender counts what it lets through.
func TestABurstDoesNotOutrunWhatIsKnown(t *testing.T) {
	t.Parallel()
	const maxBytes = 256 << 10
	js, name, _, a := limited(t, maxBytes, publisher.Options{FillAge: time.Hour})
	requireFull(t, fill(t, a, 1000))
	s, err := js.Stream(testContext(t), name)
	require.NoError(t, err)
	require.LessOrEqual(t, s.CachedInfo().State.Bytes, uint64(maxBytes*92/100))
}

// Whoever may not ask how full the stream is may append nevertheless.
func TestWithoutAnAnswerRequestsAreLetThrough(t *testing.T) {
	t.Parallel()
	_, name, prefix := testenv.Stream(t)
	a := newAppender(t, testenv.NATS(t), publisher.Options{Stream: name, SubjectPrefix: prefix, APIPrefix: "nobody.is.there"})
	_, err := a.Append(testContext(t), request("k"), "")
	require.NoError(t, err)
}

func TestTheAccountsLimitCounts(t *testing.T) {
	t.Parallel()
	const maxStore = 1 << 20
	config := filepath.Join(t.TempDir(), "nats.conf")
	text := fmt.Sprintf("accounts: {A: {jetstream: {max_file: %d, max_mem: 1MB}, users: [{user: a, password: a}]}}", maxStore)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	server := testenv.StartNATS(t, natsserver.Options{ConfigFile: config})
	nc := testenv.Connect(t, server.URL(), nats.UserInfo("a", "a"))
	_, name, prefix := testenv.StreamOn(t, nc)
	a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix, FillAge: time.Millisecond})
	full := requireFull(t, fill(t, a, 10_000))
	require.Equal(t, "the account's storage", full.What)
	require.EqualValues(t, maxStore, full.Limit)
	_, err := a.Append(testContext(t), completion(1), "")
	require.NoError(t, err)
}

// The server's own limit cannot be asked for by a client. It refuses everything
// when it is reached.
func TestAServerWithoutRoomIsFull(t *testing.T) {
	t.Parallel()
	server := testenv.StartNATS(t, natsserver.Options{MaxStoreBytes: 256 << 10})
	nc := testenv.Connect(t, server.URL())
	_, name, prefix := testenv.StreamOn(t, nc)
	a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix})
	late := 0
	for i := range 10_000 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := a.Append(ctx, padded(fmt.Sprint(i), 10_000), "")
		cancel()
		if errors.Is(err, publisher.ErrUnconfirmed) && late < 5 {
			late++ // the time was over before the server had answered the latest try
			continue
		}
		if err != nil {
			require.ErrorIs(t, err, publisher.ErrFull)
			require.ErrorIs(t, err, publisher.ErrNotAppended)
			return
		}
	}
	t.Fatal("the server took more than it has room for")
}

func TestRequestsLeaveRoomForTheirStart(t *testing.T) {
	t.Parallel()
	for _, maxPayload := range []int{64 << 10, ledger.MaxPayloadBytes, 4 * ledger.MaxPayloadBytes} {
		t.Run(fmt.Sprint(maxPayload), func(t *testing.T) {
			t.Parallel()
			server := testenv.StartNATS(t, natsserver.Options{MaxPayload: int32(maxPayload)})
			nc := testenv.Connect(t, server.URL())
			js, err := jetstream.New(nc)
			require.NoError(t, err)
			config := stream.Config("SIZES", "sizes", 1, 0)
			_, err = stream.Create(testContext(t), js, config)
			require.NoError(t, err)
			a := newAppender(t, nc, publisher.Options{Stream: config.Name, SubjectPrefix: "sizes"})
			most := min(maxPayload, ledger.MaxPayloadBytes) - ledger.StartReserveBytes
			m := ledger.Message{Subject: "job.request.web", ID: "id", Data: bytes.Repeat([]byte("x"), most+1)}
			_, err = a.Append(testContext(t), m, "")
			var size *publisher.TooLargeError
			require.ErrorAs(t, err, &size)
			require.Equal(t, publisher.TooLargeError{Bytes: int64(most) + 1, Limit: int64(most), Reserve: ledger.StartReserveBytes}, *size)
			require.ErrorIs(t, err, publisher.ErrNotAppended)
			m.Data = m.Data[:most]
			_, err = a.Append(testContext(t), m, "")
			require.NoError(t, err)
			require.Len(t, stored(t, js, config.Name), 1)
		})
	}
}
