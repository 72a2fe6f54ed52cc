package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"jobledger/publisher"
)

const (
	dialTimeout    = 5 * time.Second
	reconnectWait  = 250 * time.Millisecond
	reconnectSpan  = 250 * time.Millisecond // jitter on top
	flusherTimeout = 10 * time.Second
	// pingInterval and the pings that may be unanswered give up a server that
	// hangs after 10 to 15 s. The client library's own two minutes would leave
	// a process with it although the cluster's other servers are well.
	pingInterval = 5 * time.Second
	maxPingsOut  = 2
	linkStop     = 5 * time.Second
)

// A natsTarget says how to reach NATS.
type natsTarget struct {
	url   string
	creds string        // a credentials file; "": none
	inbox string        // what the process's inboxes start with; "": _INBOX
	via   []nats.Option // such as an in-process connection
}

// dial connects under the given name. The first connection must come about in
// dialTimeout; a lost one is made anew for ever.
func (t natsTarget) dial(name string, log *slog.Logger) (*nats.Conn, error) {
	log = log.With("component", name)
	options := []nats.Option{
		nats.Name(name),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectSpan, reconnectSpan),
		nats.FlusherTimeout(flusherTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPingsOut),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if err != nil && !nc.IsClosed() {
				log.Warn("the connection to NATS is lost; reconnecting", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("the connection to NATS is back", "server", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			log.Warn("NATS reports an error", "error", err, "subject", subjectOf(sub))
		}),
	}
	if t.creds != "" {
		options = append(options, nats.UserCredentials(t.creds))
	}
	if t.inbox != "" {
		options = append(options, nats.CustomInboxPrefix(t.inbox))
	}
	nc, err := nats.Connect(t.url, append(options, t.via...)...)
	if err != nil {
		var urlErr *url.Error
		if errors.As(err, &urlErr) {
			err = urlErr.Err // without the URL
		}
		return nil, exitWith(exitUnreachable, "connect to NATS at %s: %w", redacted(t.url), err)
	}
	return nc, nil
}

// userInfo is what may stand before a host: names, passwords, tokens.
var userInfo = regexp.MustCompile(`(^|//)[^/]*@`)

// redacted is a list of URLs without the secrets that may stand in them.
func redacted(urls string) string { return userInfo.ReplaceAllString(urls, "$1…@") }

func subjectOf(sub *nats.Subscription) string {
	if sub == nil {
		return ""
	}
	return sub.Subject
}

// A link is a connection with what is needed to append to one ledger.
type link struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	appender *publisher.Appender
	client   *publisher.Client
}

// openLink connects to a ledger under a name of its own. options change how it
// appends.
func openLink(t natsTarget, stream, prefix, name string, log *slog.Logger, options ...func(*publisher.Options)) (*link, error) {
	nc, err := t.dial(name, log)
	if err != nil {
		return nil, err
	}
	l := &link{nc: nc}
	if err := l.fill(stream, prefix, options); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), l.close())
	}
	return l, nil
}

func (l *link) fill(stream, prefix string, options []func(*publisher.Options)) error {
	o := publisher.Options{Stream: stream, SubjectPrefix: prefix}
	for _, change := range options {
		change(&o)
	}
	var err error
	if l.js, err = jetstream.New(l.nc); err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	if l.appender, err = publisher.NewAppender(l.nc, o); err != nil {
		return err
	}
	l.client, err = publisher.NewClient(l.nc, l.appender, 0)
	return err
}

// close ends the connection, after what is being appended, for a bounded time.
func (l *link) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), linkStop)
	defer cancel()
	var errs []error
	if l.client != nil {
		errs = append(errs, l.client.Close())
	}
	if l.appender != nil {
		errs = append(errs, l.appender.Close(ctx))
	}
	l.nc.Close()
	return errors.Join(errs...)
}
