package publisher_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
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

// testTimeout bounds each test.
const testTimeout = time.Minute

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// newAppender makes an Appender that is closed with the test.
func newAppender(t testing.TB, nc *nats.Conn, o publisher.Options) *publisher.Appender {
	t.Helper()
	a, err := publisher.NewAppender(nc, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close(testContext(t)) })
	return a
}

func request(key string) ledger.Message {
	return (&ledger.Request{Owner: "acme", Key: key, Kind: "echo", Input: []byte(`{"n":1}`)}).Message()
}

// stored returns the bodies in the stream, by sequence from 1.
func stored(t testing.TB, js jetstream.JetStream, name string) [][]byte {
	t.Helper()
	ctx := testContext(t)
	s, err := js.Stream(ctx, name)
	require.NoError(t, err)
	info, err := s.Info(ctx)
	require.NoError(t, err)
	var bodies [][]byte
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		msg, err := s.GetMsg(ctx, seq)
		require.NoError(t, err)
		bodies = append(bodies, msg.Data)
	}
	return bodies
}

func modes(t *testing.T, test func(t *testing.T, mode publisher.Mode)) {
	for name, mode := range map[string]publisher.Mode{"grouped": publisher.Grouped, "single": publisher.Single} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

func TestAppendStoresAtTheSequenceThatItReturns(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		const callers = 1000
		js, name, prefix := testenv.Stream(t)
		a := newAppender(t, testenv.NATS(t), publisher.Options{Stream: name, SubjectPrefix: prefix, Mode: mode})
		ctx := testContext(t)
		var seqs [callers]uint64
		var errs [callers]error
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				var ack publisher.Ack
				ack, errs[i] = a.Append(ctx, request(fmt.Sprint(i)), "")
				seqs[i] = ack.Seq
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs[:]...))
		bodies := stored(t, js, name)
		require.Len(t, bodies, callers)
		for i, seq := range seqs {
			require.Equal(t, string(request(fmt.Sprint(i)).Data), string(bodies[seq-1]))
		}
	})
}

func TestAppendRecognisesItsOwnEntry(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		js, name, prefix := testenv.Stream(t)
		a := newAppender(t, testenv.NATS(t), publisher.Options{Stream: name, SubjectPrefix: prefix, Mode: mode})
		ctx := testContext(t)
		first, err := a.Append(ctx, request("k"), "_INBOX.first")
		require.NoError(t, err)
		require.Equal(t, publisher.Ack{Seq: 1}, first)

		again, err := a.Append(ctx, request("k"), "_INBOX.second")
		require.NoError(t, err)
		require.Equal(t, publisher.Ack{Seq: 1, Duplicate: true, ReplyTo: "_INBOX.first"}, again)

		fresh, err := a.Append(ctx, publisher.Fresh(request("k")), "")
		require.NoError(t, err)
		require.Equal(t, publisher.Ack{Seq: 2}, fresh)
		require.Len(t, stored(t, js, name), 2)
	})
}

func TestAppendDoesNotTrustAForeignID(t *testing.T) {
	t.Parallel()
	js, name, prefix := testenv.Stream(t)
	a := newAppender(t, testenv.NATS(t), publisher.Options{Stream: name, SubjectPrefix: prefix})
	ctx := testContext(t)
	mine := request("k")
	_, err := js.Publish(ctx, prefix+".job.request", []byte("other"), jetstream.WithMsgID(mine.ID))
	require.NoError(t, err)

	ack, err := a.Append(ctx, mine, "")
	require.NoError(t, err)
	require.Equal(t, publisher.Ack{Seq: 2}, ack)
	require.Equal(t, string(mine.Data), string(stored(t, js, name)[1]))
}

// One member of a batch whose id the server knows has the whole batch refused;
// the others must not suffer.
func TestDuplicateAmongManyIsFoundAndTheOthersAreStored(t *testing.T) {
	t.Parallel()
	const callers = 200
	js, name, prefix := testenv.Stream(t)
	ctx := testContext(t)
	for i := 0; i < callers; i += 10 { // by another process
		m := request(fmt.Sprint(i))
		_, err := js.Publish(ctx, prefix+"."+m.Subject, m.Data, jetstream.WithMsgID(m.ID))
		require.NoError(t, err)
	}
	a := newAppender(t, testenv.NATS(t), publisher.Options{Stream: name, SubjectPrefix: prefix, Batches: 1})
	var wg sync.WaitGroup
	acks, errs := make([]publisher.Ack, callers), make([]error, callers)
	for i := range callers {
		wg.Go(func() { acks[i], errs[i] = a.Append(ctx, request(fmt.Sprint(i)), "") })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	for i, ack := range acks {
		require.Equal(t, i%10 == 0, ack.Duplicate, "append %d", i)
	}
	require.Len(t, stored(t, js, name), callers)
}

func TestLostAcknowledgementStoresOnce(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		js, name, prefix := testenv.Stream(t)
		proxy := testenv.NewProxy(t, testenv.NATSURL(t))
		nc := testenv.Connect(t, proxy.URL(testenv.NATSURL(t)))
		a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix, Mode: mode, AckWait: 200 * time.Millisecond})
		ctx := testContext(t)
		proxy.HoldAnswers()
		var wg sync.WaitGroup
		acks, errs := make([]publisher.Ack, 20), make([]error, 20)
		for i := range acks {
			wg.Go(func() { acks[i], errs[i] = a.Append(ctx, request(fmt.Sprint(i)), "_INBOX.me") })
		}
		testenv.Eventually(t, testTimeout, func() (bool, string) {
			n := len(stored(t, js, name))
			return n == len(acks), fmt.Sprintf("%d of %d entries are stored", n, len(acks))
		})
		proxy.Drop() // the answers are lost
		proxy.Restore()
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		for i, ack := range acks {
			require.Equal(t, publisher.Ack{Seq: ack.Seq, Duplicate: true, ReplyTo: "_INBOX.me"}, ack, "append %d", i)
		}
		require.Len(t, stored(t, js, name), len(acks))
	})
}

func TestUnansweredIsUnconfirmed(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		_, name, prefix := testenv.Stream(t)
		proxy := testenv.NewProxy(t, testenv.NATSURL(t))
		nc := testenv.Connect(t, proxy.URL(testenv.NATSURL(t)))
		a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix, Mode: mode, AckWait: 50 * time.Millisecond})
		proxy.HoldAnswers()
		ctx, cancel := context.WithTimeout(testContext(t), 400*time.Millisecond)
		defer cancel()
		_, err := a.Append(ctx, request("k"), "")
		require.ErrorIs(t, err, publisher.ErrUnconfirmed)
		require.NotErrorIs(t, err, publisher.ErrNotAppended)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var detail *publisher.AppendError
		require.ErrorAs(t, err, &detail)
		require.Greater(t, detail.Tries, 1, "it must have been repeated")
	})
}

func TestWithoutAConnectionNothingIsSent(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		js, name, prefix := testenv.Stream(t)
		proxy := testenv.NewProxy(t, testenv.NATSURL(t))
		nc := testenv.Connect(t, proxy.URL(testenv.NATSURL(t)))
		a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix, Mode: mode})
		proxy.Cut()
		testenv.Eventually(t, testTimeout, func() (bool, string) { return nc.IsReconnecting(), "still connected" })
		ctx, cancel := context.WithTimeout(testContext(t), 200*time.Millisecond)
		defer cancel()
		_, err := a.Append(ctx, request("never"), "")
		require.ErrorIs(t, err, publisher.ErrNotAppended)
		require.ErrorIs(t, err, publisher.ErrUnavailable)

		proxy.Restore()
		_, err = a.Append(testContext(t), request("later"), "")
		require.NoError(t, err)
		require.Len(t, stored(t, js, name), 1)
	})
}

func TestMissingStreamIsUnavailable(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		a := newAppender(t, testenv.NATS(t), publisher.Options{Stream: "NONE", SubjectPrefix: "none", Mode: mode})
		ctx, cancel := context.WithTimeout(testContext(t), 300*time.Millisecond)
		defer cancel()
		_, err := a.Append(ctx, request("k"), "")
		require.ErrorIs(t, err, publisher.ErrUnavailable)
		require.ErrorIs(t, err, publisher.ErrNotAppended)
	})
}

func TestFullStreamRefuses(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		js, name, prefix := testenv.Stream(t)
		_, err := js.UpdateStream(testContext(t), stream.Config(name, prefix, 1, 4<<10))
		require.NoError(t, err)
		a := newAppender(t, testenv.NATS(t), publisher.Options{Stream: name, SubjectPrefix: prefix, Mode: mode})
		var wg sync.WaitGroup
		errs := make([]error, 100)
		for i := range errs {
			wg.Go(func() { _, errs[i] = a.Append(testContext(t), request(fmt.Sprint(i)), "") })
		}
		wg.Wait()
		kept := 0
		for _, err := range errs {
			if err == nil {
				kept++
				continue
			}
			require.ErrorIs(t, err, publisher.ErrNotAppended)
		}
		require.Len(t, stored(t, js, name), kept)
		require.Less(t, kept, len(errs))
	})
}

func TestSizeIsCheckedBeforeSending(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		js, name, prefix := testenv.Stream(t)
		nc := testenv.NATS(t)
		a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix, Mode: mode})
		ctx := testContext(t)
		header := len("NATS/1.0\r\n" + "Nats-Msg-Id: id\r\n" + "Ledger-Reply: r\r\n" + "\r\n")
		fits := ledger.Message{Subject: "attempt.complete.p", ID: "id", Data: bytes.Repeat([]byte("x"), natsserver.MaxPayloadBytes-header)}
		over := ledger.Message{Subject: "attempt.complete.p", ID: "no", Data: append(fits.Data[:len(fits.Data):len(fits.Data)], 'x')}

		var wg sync.WaitGroup
		for i := range 20 { // the others must not suffer
			wg.Go(func() {
				_, err := a.Append(ctx, request(fmt.Sprint(i)), "")
				require.NoError(t, err)
			})
		}
		_, err := a.Append(ctx, over, "r")
		require.ErrorIs(t, err, publisher.ErrNotAppended)
		var size *publisher.TooLargeError
		require.ErrorAs(t, err, &size)
		require.Equal(t, publisher.TooLargeError{Bytes: natsserver.MaxPayloadBytes + 1, Limit: natsserver.MaxPayloadBytes}, *size)
		_, err = a.Append(ctx, fits, "r")
		require.NoError(t, err)
		wg.Wait()
		require.Len(t, stored(t, js, name), 21)
		require.Zero(t, nc.Reconnects)
	})
}

func TestRestartUnderLoadLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		const callers, each = 50, 20
		server := testenv.StartNATS(t, natsserver.Options{SyncAlways: true})
		nc := testenv.Connect(t, server.URL())
		js, name, prefix := testenv.StreamOn(t, nc)
		a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix, Mode: mode})
		ctx := testContext(t)
		var wg sync.WaitGroup
		errs := make([]error, callers)
		progress := make(chan struct{}, callers*each)
		for i := range callers {
			wg.Go(func() {
				for n := range each {
					_, err := a.Append(ctx, request(fmt.Sprintf("%d/%d", i, n)), "")
					errs[i] = errors.Join(errs[i], err)
					progress <- struct{}{}
				}
			})
		}
		for range callers * each / 4 {
			<-progress
		}
		server.Kill()
		server.Restart()
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		seen := map[string]int{}
		for _, body := range stored(t, js, name) {
			seen[string(body)]++
		}
		require.Len(t, seen, callers*each)
		for body, n := range seen {
			require.Equal(t, 1, n, body)
		}
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		_, name, prefix := testenv.Stream(t)
		proxy := testenv.NewProxy(t, testenv.NATSURL(t))
		nc := testenv.Connect(t, proxy.URL(testenv.NATSURL(t)))
		a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix, Mode: mode})
		proxy.HoldAnswers()
		result := make(chan error, 1)
		out := nc.Stats().OutMsgs
		go func() {
			_, err := a.Append(testContext(t), completion(1), "")
			result <- err
		}()
		testenv.Eventually(t, testTimeout, func() (bool, string) { return nc.Stats().OutMsgs > out, "nothing was sent" })
		ctx, cancel := context.WithTimeout(testContext(t), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, a.Close(ctx), context.DeadlineExceeded)
		err := <-result
		require.ErrorIs(t, err, publisher.ErrUnconfirmed)
		require.ErrorIs(t, err, publisher.ErrClosed)

		require.NoError(t, a.Close(testContext(t)))
		_, err = a.Append(testContext(t), request("k"), "")
		require.ErrorIs(t, err, publisher.ErrNotAppended)
		require.ErrorIs(t, err, publisher.ErrClosed)
	})
}

func TestClosedConnectionEndsAppends(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, mode publisher.Mode) {
		_, name, prefix := testenv.Stream(t)
		nc := testenv.NATS(t)
		a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix, Mode: mode})
		nc.Close()
		// The first append may meet the closing itself: it may only say that it
		// does not know. After that the answer is certain.
		_, err := a.Append(context.Background(), request("k"), "")
		require.ErrorIs(t, err, nats.ErrConnectionClosed)
		_, err = a.Append(context.Background(), request("k"), "")
		require.ErrorIs(t, err, publisher.ErrNotAppended)
		require.ErrorIs(t, err, nats.ErrConnectionClosed)
		require.NoError(t, a.Close(testContext(t)))
	})
}

func TestTooLargeIsTheClientLibrarysError(t *testing.T) {
	t.Parallel()
	_, name, prefix := testenv.Stream(t)
	a := newAppender(t, testenv.NATS(t), publisher.Options{Stream: name, SubjectPrefix: prefix})
	m := ledger.Message{Subject: "attempt.complete.p", ID: "k", Data: make([]byte, ledger.MaxPayloadBytes)}
	_, err := a.Append(testContext(t), m, "")
	require.ErrorIs(t, err, nats.ErrMaxPayload, "workers shorten what is too large by this")
	require.ErrorIs(t, err, publisher.ErrNotAppended)
}
