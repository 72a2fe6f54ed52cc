package publisher

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// original is the stored entry that took a message's id.
type original struct {
	subject string
	replyTo string
	data    []byte
}

// is reports whether c says the same.
func (o *original) is(c *call) bool { return o.subject == c.subject && bytes.Equal(o.data, c.data) }

// fetchWait bounds one question for a stored entry.
const fetchWait = 2 * time.Second

// original fetches the entry with the given sequence, which the server said is
// there. A replica that lags may not have it yet: it is asked for until ctx
// ends.
func (a *Appender) original(ctx context.Context, seq uint64) (*original, error) {
	pause := firstBackoff
	for {
		o, err := a.fetch(ctx, seq)
		if err == nil {
			return o, nil
		}
		if !a.rest(ctx, jitter(pause)) {
			return nil, a.cause(ctx, fmt.Errorf("fetch the entry %d, whose id this one has: %w", seq, err))
		}
		pause = min(2*pause, maxBackoff)
	}
}

func (a *Appender) fetch(ctx context.Context, seq uint64) (*original, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	msg, err := a.nc.RequestWithContext(ctx, a.opts.APIPrefix+".DIRECT.GET."+a.opts.Stream,
		fmt.Appendf(nil, `{"seq":%d}`, seq))
	if err != nil {
		return nil, err
	}
	if status := msg.Header.Get("Status"); status != "" {
		return nil, fmt.Errorf("the server says %s %s", status, msg.Header.Get("Description"))
	}
	if got := msg.Header.Get(nats.JSSequence); got != strconv.FormatUint(seq, 10) {
		return nil, fmt.Errorf("asked for the entry %d, got %q", seq, got)
	}
	return &original{subject: msg.Header.Get(nats.JSSubject), replyTo: msg.Header.Get(ReplyHeader), data: msg.Data}, nil
}
