package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"jobledger/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// buildTimeout bounds the build of the program, which may start from nothing.
const buildTimeout = 5 * time.Minute

// program builds the command once for this test binary and returns its path.
var program = sync.OnceValues(func() (string, error) { return build("program") })

// build builds the command into a folder of its own.
func build(folder string, flags ...string) (string, error) {
	dir, err := testenv.Folder(folder)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	path := filepath.Join(dir, "jobledger")
	args := append([]string{"build", "-o", path}, flags...)
	if raceDetector {
		args = append(args, "-race")
	}
	output, err := exec.CommandContext(ctx, "go", append(args, "jobledger/cmd/jobledger")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, strings.TrimSpace(string(output)))
	}
	return path, nil
}
