package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"jobledger/publisher"
	"jobledger/workers"
)

// The names of the ledger that a dev stack makes.
const (
	streamName = "LEDGER"
	prefix     = "ledger"
)

// runWorker serves the provider slow until ctx ends: a worker of the ledger in a
// process of its own, with a provider that does not look at the clock.
func runWorker(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	natsURL := flags.String("nats", nats.DefaultURL, "the NATS server")
	stubURL := flags.String("stub", "", "the stub")
	if err := flags.Parse(args); err != nil {
		return err
	}
	nc, err := nats.Connect(*natsURL, nats.Name("sample worker"), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	appender, err := publisher.NewAppender(nc, publisher.Options{Stream: streamName, SubjectPrefix: prefix})
	if err != nil {
		return err
	}
	client, err := publisher.NewClient(nc, appender, 0)
	if err != nil {
		return err
	}
	w, err := workers.New(workers.Options{
		Provider: "slow", Impl: slowProvider{*stubURL}, Concurrency: 4,
		Ledger: client, JetStream: js, Stream: streamName, SubjectPrefix: prefix,
		Name: fmt.Sprintf("sample/%d", os.Getpid()), Grace: time.Second,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	err = w.Run(ctx)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, client.Close(), appender.Close(bounded))
}

// slowProvider does the work in its own time: the context's end does not stop
// it. The stub says when it is done.
type slowProvider struct{ stub string }

// Call implements workers.Provider.
func (p slowProvider) Call(ctx context.Context, c workers.Call) (workers.Result, error) {
	ctx = context.WithoutCancel(ctx)
	job := c.JobID.String()
	if err := p.ask(ctx, http.MethodPost, "/calls/"+job); err != nil {
		return workers.Result{}, err
	}
	if err := p.ask(ctx, http.MethodGet, "/released/"+job); err != nil {
		return workers.Result{}, err
	}
	return workers.Result{Body: []byte(`{"by":"slow","late":true}`)}, nil
}

func (p slowProvider) ask(ctx context.Context, method, path string) error {
	req, err := http.NewRequestWithContext(ctx, method, p.stub+path, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}
