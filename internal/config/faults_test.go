package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestFaults compares the messages with the transcripts in testdata/faults;
// -rewrite writes them anew.
func TestFaults(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/faults", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			err := errors.New("unknown command " + d.Cmd)
			switch d.Cmd {
			case "load":
				_, err = decode("jobledger.yaml", []byte(d.Input))
			case "contract":
				_, err = decodeContract("testdata/contracts/c.yaml", []byte(d.Input))
			case "tokens":
				_, err = decodeTokens("tokens.yaml", []byte(d.Input))
			}
			if err == nil {
				return "no fault\n"
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: the message quotes a secret: %v", d.Pos, err)
			}
			return err.Error() + "\n"
		})
	})
}
