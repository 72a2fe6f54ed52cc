package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// TestMain lets the test binary be the program, too: under its name, as scripts
// and startDev call it, and as the echo provider of a dev stack.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == execEchoName {
		os.Exit(run())
	}
	testscript.Main(testRunner{m}, map[string]func(){programName: main})
}

type testRunner struct{ m *testing.M }

// Run implements testscript.TestingM.
func (r testRunner) Run() int {
	code := r.m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the tests' dev stack:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left after the tests:", err)
			code = 1
		}
	}
	return code
}
