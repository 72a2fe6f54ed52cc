package workertest

import (
	"os"
	"testing"
	"time"

	"jobledger/internal/testenv"
)

const (
	// patience bounds what must happen in the end; usually it is there at once.
	patience = time.Minute
	// ample is an attempt's timeout that no test reaches, in milliseconds.
	ample = 60_000
)

func TestMain(m *testing.M) {
	if os.Getenv(goWorkerEnv) != "" {
		os.Exit(beGoWorker())
	}
	testenv.Main(m)
}
