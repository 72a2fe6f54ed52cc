package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// exitTryLater is EX_TEMPFAIL: nothing was done, and later it may work.
const exitTryLater = 75

// runExec is the program of the exec provider: it gets a call on standard input
// and prints the result.
func runExec(in io.Reader, out, errOut io.Writer) error {
	var c call
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return err
	}
	switch {
	case c.Input.Do == doBusyOnce && c.Attempt == 1:
		fmt.Fprintln(errOut, "the disk is busy")
		os.Exit(exitTryLater)
	case c.Input.Do == doFail:
		fmt.Fprintln(errOut, "the file was read, and it is damaged")
		os.Exit(1)
	}
	sum := sha256.Sum256(fmt.Append(nil, c.Input.Amount))
	return json.NewEncoder(out).Encode(map[string]string{"sha256": fmt.Sprintf("%x", sum)})
}
