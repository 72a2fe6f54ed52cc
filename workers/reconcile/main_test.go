package reconcile

import (
	"testing"

	"jobledger/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
