package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThrottlePassesOneWarningASecondForEachComponent(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Unix(0, 0)
	text := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	root := slog.New(Throttle(text, func() time.Time { return now }))
	projector, api := root.With("role", "projector"), root.With("role", "api").With("shard", 1)
	projector.Warn("first")
	projector.Warn("second")
	projector.Error("errors pass")
	projector.Info("information passes")
	api.Warn("another component")
	now = now.Add(time.Second)
	projector.Warn("third")
	require.Equal(t, []string{
		`level=WARN msg=first role=projector`,
		`level=ERROR msg="errors pass" role=projector`,
		`level=INFO msg="information passes" role=projector`,
		`level=WARN msg="another component" role=api shard=1`,
		`level=WARN msg=third role=projector suppressed=1`,
	}, strings.Split(strings.TrimSpace(out.String()), "\n"))
}
