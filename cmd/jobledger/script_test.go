package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"jobledger/internal/testenv"
)

// TestScripts runs the transcripts in testdata/script against one dev stack,
// which JOBLEDGER_DATA names. Each uses an owner of its own. Beside testscript's
// own commands they have
//
//	exits N CMD…       runs CMD, which must end with the status N
//	eventually CMD…    repeats CMD until it succeeds
//	database NAME      makes an empty database and puts its URL into DATABASE
//	sql STATEMENT      executes a statement in that database
//	answers N URL [TEXT]  repeats GET URL until it is answered with the status N, and TEXT in it
func TestScripts(t *testing.T) {
	t.Parallel()
	dev := shared.get(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("JOBLEDGER_DATA", dev.dir)
			env.Setenv("API", dev.where.HTTP)
			env.Setenv("NATS", dev.where.NATS)
			env.Setenv("PORT", strconv.Itoa(testenv.FreePort(t)))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "eventually": eventually, "database": database, "sql": sql, "answers": answers,
		},
		RequireUniqueNames: true,
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N CMD…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code, err := statusOf(ts.Exec(args[1], args[2:]...))
	ts.Check(err)
	if code != want {
		ts.Fatalf("exit status %d; expected %d", code, want)
	}
}

func statusOf(err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: eventually CMD…")
	}
	repeat(ts, func() error { return ts.Exec(args[0], args[1:]...) })
}

var databaseName = regexp.MustCompile(`^[a-z_]+$`)

func database(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || !databaseName.MatchString(args[0]) {
		ts.Fatalf("usage: database NAME")
	}
	u, err := url.Parse(shared.dev.where.Database)
	ts.Check(err)
	ts.Check(execute(u.String(), "CREATE DATABASE "+args[0]))
	u.Path = "/" + args[0]
	ts.Setenv("DATABASE", u.String())
}

func sql(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sql STATEMENT")
	}
	ts.Check(execute(ts.Getenv("DATABASE"), args[0]))
}

func execute(databaseURL, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), scriptWait)
	defer cancel()
	db, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, statement)
	return errors.Join(err, db.Close(ctx))
}

func answers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: answers N URL [TEXT]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	client := http.Client{Timeout: scriptWait, Transport: &http.Transport{DisableKeepAlives: true}}
	repeat(ts, func() error {
		res, err := client.Get(args[1])
		if err != nil {
			return err
		}
		body, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			return err
		}
		if res.StatusCode != want || len(args) == 3 && !strings.Contains(string(body), args[2]) {
			return fmt.Errorf("%s answers %d %s", args[1], res.StatusCode, body)
		}
		return nil
	})
}

const scriptWait = 30 * time.Second

// repeat calls f until it returns nil, for a bounded time. Between processes
// there is no signal to wait for.
func repeat(ts *testscript.TestScript, f func() error) {
	end := time.Now().Add(scriptWait)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("not within %s: %v", scriptWait, err)
		}
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // polls until a deadline: between processes there is no signal
	}
}
