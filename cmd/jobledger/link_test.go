package main

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorsOfConnectingHideSecrets(t *testing.T) {
	t.Parallel()
	for urls, shown := range map[string]string{
		"nats://127.0.0.1:1":                               "nats://127.0.0.1:1",
		"nats://eve:secret@127.0.0.1:1":                    "nats://…@127.0.0.1:1",
		"eve:secret@127.0.0.1:1":                           "…@127.0.0.1:1",
		"nats://secret@127.0.0.1:1,tls://a:secret@[::1]:1": "nats://…@127.0.0.1:1,tls://…@[::1]:1",
		"nats://eve:sec,ret@127.0.0.1:1":                   "nats://…@127.0.0.1:1",
		"nats://eve:secret@127.0.0.1:port":                 "nats://…@127.0.0.1:port",
	} {
		_, err := natsTarget{url: urls}.dial("test", slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "at "+shown+": ", urls)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), "ret@")
		require.Equal(t, exitUnreachable, exitCode(err))
	}
}
