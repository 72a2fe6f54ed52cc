package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A cluster's follower may not have an entry yet that the leader acknowledged, a
// new leader may not have applied all of them, and a stream is not found while
// its leader is elected: what is missing is asked for again before it counts as
// gone.
const (
	missingTries = 6
	missingPause = 400 * time.Millisecond
)

// fetchEntry fetches one entry. An entry that is not there is a *StreamError.
func fetchEntry(ctx context.Context, stream jetstream.Stream, seq uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	for try := 1; ; try++ {
		m, err := stream.GetMsg(ctx, seq)
		switch {
		case err == nil:
			return m, nil
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return nil, fmt.Errorf("fetch entry %d: %w", seq, err)
		case try == missingTries:
			return nil, gap(seq-1, seq+1)
		}
		if err := pause(ctx, missingPause); err != nil {
			return nil, fmt.Errorf("fetch entry %d: %w", seq, err)
		}
	}
}

// streamState asks the stream for its bounds, again for a while if they end
// before the sequence atLeast. A stream that does not exist is a *StreamError.
func streamState(ctx context.Context, stream jetstream.Stream, atLeast uint64) (jetstream.StreamState, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	for try := 1; ; try++ {
		info, err := stream.Info(ctx)
		switch {
		case err == nil && (info.State.LastSeq >= atLeast || try == missingTries):
			return info.State, nil
		case err != nil && !errors.Is(err, jetstream.ErrStreamNotFound):
			return jetstream.StreamState{}, fmt.Errorf("look at the stream: %w", err)
		case try == missingTries:
			return jetstream.StreamState{}, &StreamError{Problem: "the stream does not exist",
				Advice: "restore it from a backup, as docs/runbook.md says; nothing creates it anew while there are tables"}
		}
		if err := pause(ctx, missingPause); err != nil {
			return jetstream.StreamState{}, fmt.Errorf("look at the stream: %w", err)
		}
	}
}

// checkPosition checks that the stream still holds what the position was read
// from: the entry there, hashed again, gives the same chain.
func checkPosition(ctx context.Context, stream jetstream.Stream, pos Position) error {
	state, err := streamState(ctx, stream, pos.Seq)
	switch {
	case err != nil:
		return err
	case state.LastSeq < pos.Seq:
		return &StreamError{Seq: pos.Seq, Problem: fmt.Sprintf("the stream ends at %d already: it was restored from an older backup, or created again",
			state.LastSeq), Advice: adviceOther}
	case state.Msgs > 0 && state.FirstSeq > pos.Seq+1:
		return gap(pos.Seq, state.FirstSeq)
	case pos.Seq == 0:
		return nil
	}
	m, err := fetchEntry(ctx, stream, pos.Seq)
	if err != nil {
		return err
	}
	before := Position{Seq: pos.Seq - 1, Chain: pos.Prev}
	if before.next(m.Sequence, m.Time, m.Subject, m.Data).Chain != pos.Chain {
		return wrongChain(pos.Seq)
	}
	return nil
}
