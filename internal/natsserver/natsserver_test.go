package natsserver_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"jobledger/internal/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, o natsserver.Options) *natsserver.Server {
	t.Helper()
	server, err := natsserver.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(testContext(t))) })
	return server
}

func jetStream(t *testing.T, url string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, options...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

func TestDataSurviveARestart(t *testing.T) {
	t.Parallel()
	ctx, dir := testContext(t), t.TempDir()
	server := start(t, natsserver.Options{Dir: dir, SyncAlways: true})
	js := jetStream(t, server.URL())
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxBytes: 32 << 30})
	require.NoError(t, err, "a limit below MaxStoreBytes is granted, whatever the disk has free")
	_, err = js.Publish(ctx, "s", []byte("kept"))
	require.NoError(t, err)
	require.NoError(t, server.Stop(ctx))
	require.NoError(t, server.Stop(ctx), "stopping twice is harmless")

	again := start(t, natsserver.Options{Dir: dir, Port: server.Port()})
	require.Equal(t, server.URL(), again.URL())
	found, err := jetStream(t, again.URL()).Stream(ctx, "S")
	require.NoError(t, err)
	message, err := found.GetMsg(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, "kept", string(message.Data))
}

func TestInProcessConnection(t *testing.T) {
	t.Parallel()
	server := start(t, natsserver.Options{Dir: t.TempDir()})
	js := jetStream(t, "", server.InProcessConn())
	info, err := js.AccountInfo(testContext(t))
	require.NoError(t, err)
	require.Zero(t, info.Streams)
	require.Equal(t, int64(natsserver.MaxPayloadBytes), js.Conn().MaxPayload())
}

func TestMonitoring(t *testing.T) {
	t.Parallel()
	require.Empty(t, start(t, natsserver.Options{Dir: t.TempDir()}).MonitorURL())

	server := start(t, natsserver.Options{Dir: t.TempDir(), MonitorPort: -1})
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(server.MonitorURL() + "/healthz")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

func TestConfigFileGivesPermissions(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(config, []byte(`
		authorization { users = [
			{user: producer, password: secret, permissions: {publish: "ledger.job.request"}}
		] }`), 0o600))
	server := start(t, natsserver.Options{Dir: t.TempDir(), ConfigFile: config})
	_, err := nats.Connect(server.URL())
	require.ErrorIs(t, err, nats.ErrAuthorization)

	refused := make(chan error, 1)
	nc, err := nats.Connect(server.URL(), nats.UserInfo("producer", "secret"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	require.NoError(t, err)
	defer nc.Close()
	require.NoError(t, nc.Publish("ledger.clock.due", nil))
	select {
	case err := <-refused:
		require.ErrorIs(t, err, nats.ErrPermissionViolation)
	case <-testContext(t).Done():
		t.Fatal("publishing was not refused")
	}
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	_, err := natsserver.Start(natsserver.Options{})
	require.ErrorContains(t, err, "Options.Dir is empty")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = natsserver.Start(natsserver.Options{Dir: file})
	require.ErrorContains(t, err, "not a directory")

	server := start(t, natsserver.Options{Dir: t.TempDir()})
	began := time.Now()
	_, err = natsserver.Start(natsserver.Options{Dir: t.TempDir(), Port: server.Port()})
	require.ErrorContains(t, err, "address already in use")
	require.Less(t, time.Since(began), 20*time.Second, "a port that is taken is reported without waiting for the deadline")
}
