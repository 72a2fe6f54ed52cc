package testenv

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// janitorScript waits for the end of its input, which comes when the test
// binary ends in whatever way, and removes the folder; more than once, since
// servers that are still ending write into it.
const janitorScript = `
read -r _
i=0
while [ -e "$1" ] && [ "$i" -lt 100 ]; do
	rm -rf -- "$1"
	i=$((i + 1))
	[ ! -e "$1" ] || sleep 0.1
done`

// janitor is a process that outlives this one to remove its folder.
type janitor struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

func hireJanitor(dir string) (*janitor, error) {
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "janitor", dir)
	// A group of its own, so that Ctrl-C reaches only the tests.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("open the janitor's input: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	return &janitor{cmd: cmd, input: input}, nil
}

// dismiss lets the janitor finish and waits for it.
func (j *janitor) dismiss() error {
	if j == nil {
		return nil
	}
	if err := j.input.Close(); err != nil {
		return fmt.Errorf("dismiss the janitor: %w", err)
	}
	if err := j.cmd.Wait(); err != nil {
		return fmt.Errorf("the janitor: %w", err)
	}
	return nil
}
