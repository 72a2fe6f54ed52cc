package stream_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/stream"
	"jobledger/internal/testenv"
	"jobledger/ledger"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func jetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(testenv.NATS(t))
	require.NoError(t, err)
	return js
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"a.b.rules.set", "a.b.kind.define", "a.b.provider.define", "a.b.provider.verified",
		"a.b.job.request", "a.b.job.request.*", "a.b.job.cancel",
		"a.b.attempt.request", "a.b.attempt.start.*", "a.b.attempt.claim.*", "a.b.attempt.complete.*", "a.b.attempt.resolve",
		"a.b.clock.due",
	}, ledger.StoredSubjects("a.b"))
}

func TestServerKeepsTheConfiguration(t *testing.T) {
	t.Parallel()
	js, name, prefix := testenv.Stream(t)
	opened, err := stream.Open(testContext(t), js, name, prefix)
	require.NoError(t, err)
	config := opened.CachedInfo().Config
	config.Metadata = nil // the server's own versions
	require.Equal(t, stream.Config(name, prefix, 1, 0).Subjects, config.Subjects)
	require.Equal(t, jetstream.StreamConfig{
		Name:        name,
		Description: stream.Config(name, prefix, 1, 0).Description,
		Subjects:    ledger.StoredSubjects(prefix),
		Storage:     jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew,
		Replicas: 1, Duplicates: 2 * time.Minute,
		MaxBytes: -1, MaxConsumers: -1, MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: 1 << 20,
		DenyDelete: true, DenyPurge: true, AllowDirect: true, AllowAtomicPublish: true, AllowBatchPublish: true,
	}, config)
}

func TestCreateRefusesAnExistingStream(t *testing.T) {
	t.Parallel()
	js, name, prefix := testenv.Stream(t)
	_, err := stream.Create(testContext(t), js, stream.Config(name, prefix, 1, 0))
	require.ErrorIs(t, err, stream.ErrExists, "an equal one")
	_, err = stream.Create(testContext(t), js, stream.Config(name, prefix+"x", 1, 1<<20))
	require.ErrorIs(t, err, stream.ErrExists, "a different one")
}

func TestOpenNeverCreates(t *testing.T) {
	t.Parallel()
	js := jetStream(t)
	_, err := stream.Open(testContext(t), js, "ABSENT", "absent")
	require.ErrorIs(t, err, stream.ErrMissing)
	require.ErrorContains(t, err, "jobledger init")
	_, err = js.Stream(testContext(t), "ABSENT")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}

func TestAFullStreamRefusesAndForgetsNothing(t *testing.T) {
	t.Parallel()
	ctx, js := testContext(t), jetStream(t)
	created, err := stream.Create(ctx, js, stream.Config("FULL", "full", 1, 64<<10))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, js.DeleteStream(context.Background(), "FULL")) })

	var stored uint64
	for range 100 {
		if _, err = js.Publish(ctx, "full.job.request", make([]byte, 4<<10)); err != nil {
			break
		}
		stored++
	}
	require.ErrorContains(t, err, "maximum bytes exceeded")
	info, err := created.Info(ctx)
	require.NoError(t, err)
	require.Equal(t, uint64(1), info.State.FirstSeq)
	require.Equal(t, stored, info.State.Msgs)

	require.Error(t, created.DeleteMsg(ctx, 1), "entries are not deleted")
	require.Error(t, created.Purge(ctx), "nor purged")
}

func TestServicesAreNotStored(t *testing.T) {
	t.Parallel()
	js, _, prefix := testenv.Stream(t)
	for _, subject := range []string{".api.job.submit", ".outcome.id", ".stop.p", ".attempt.start", ".attempt.start.p.q"} {
		_, err := js.Publish(testContext(t), prefix+subject, nil, jetstream.WithRetryAttempts(0))
		require.ErrorIs(t, err, jetstream.ErrNoStreamResponse, subject)
	}
}

// TestOpenNamesAWrongSetting makes real streams that are wrong in one setting.
func TestOpenNamesAWrongSetting(t *testing.T) {
	t.Parallel()
	wrong := map[string]func(*jetstream.StreamConfig){
		"storage: found Memory, expected File":             func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"discard: found DiscardOld, expected DiscardNew":   func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"duplicate_window: found 1m0s, expected 2m0s":      func(c *jetstream.StreamConfig) { c.Duplicates = time.Minute },
		"max_age: found 1h0m0s, expected 0s":               func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"max_msgs: found 50, expected no limit":            func(c *jetstream.StreamConfig) { c.MaxMsgs = 50 },
		"max_msgs_per_subject: found 5, expected no limit": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 },
		"max_msg_size: found 9, expected 1048576":          func(c *jetstream.StreamConfig) { c.MaxMsgSize = 9 },
		"max_consumers: found 3, expected no limit":        func(c *jetstream.StreamConfig) { c.MaxConsumers = 3 },
		"deny_delete: found false, expected true":          func(c *jetstream.StreamConfig) { c.DenyDelete = false },
		"deny_purge: found false, expected true":           func(c *jetstream.StreamConfig) { c.DenyPurge = false },
		"allow_direct: found false, expected true":         func(c *jetstream.StreamConfig) { c.AllowDirect = false },
		"allow_atomic: found false, expected true":         func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false },
		"allow_batched: found false, expected true":        func(c *jetstream.StreamConfig) { c.AllowBatchPublish = false },
		"allow_msg_ttl: found true, expected false":        func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
		"first_seq: found 7, expected 1":                   func(c *jetstream.StreamConfig) { c.FirstSeq = 7 },
		"no_ack: found true, expected false":               func(c *jetstream.StreamConfig) { c.NoAck = true },
		"retention: found Interest, expected Limits":       func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"allow_rollup_hdrs: found true, expected false":    func(c *jetstream.StreamConfig) { c.AllowRollup, c.DenyPurge = true, false },
		"sources: found present, expected none":            func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "OTHER"}} },
		"subject_transform: found present, expected none": func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "x", Destination: "y"}
		},
		"max_consumers: found 1, expected no limit":           func(c *jetstream.StreamConfig) { c.MaxConsumers = 1 },
		"discard_new_per_subject: found true, expected false": func(c *jetstream.StreamConfig) { c.DiscardNewPerSubject, c.MaxMsgsPerSubject = true, 1 },
		"allow_msg_schedules: found true, expected false": func(c *jetstream.StreamConfig) {
			c.AllowMsgSchedules, c.DenyPurge, c.Discard = true, false, jetstream.DiscardOld
		},
		"subject_delete_marker_ttl: found 1m0s, expected 0s": func(c *jetstream.StreamConfig) {
			c.SubjectDeleteMarkerTTL, c.AllowMsgTTL, c.DenyPurge, c.AllowRollup = time.Minute, true, false, true
		},
		"consumer_limits: found {1m0s 0}, expected {0s 0}":      func(c *jetstream.StreamConfig) { c.ConsumerLimits.InactiveThreshold = time.Minute },
		"subjects: found wrong.>, expected wrong.attempt.claim": func(c *jetstream.StreamConfig) { c.Subjects = []string{"wrong.>"} },
	}
	js := jetStream(t)
	for text, change := range wrong {
		t.Run(text, func(t *testing.T) { // one after the other: they share subjects
			ctx := testContext(t)
			config := stream.Config("WRONG", "wrong", 1, 0)
			change(&config)
			_, err := stream.Create(ctx, js, config)
			require.NoError(t, err)
			defer func() { require.NoError(t, js.DeleteStream(ctx, "WRONG")) }()

			_, err = stream.Open(ctx, js, "WRONG", "wrong")
			var mismatch *stream.MismatchError
			require.ErrorAs(t, err, &mismatch)
			require.ErrorContains(t, err, text)
		})
	}
}

// TestCheckListsEveryDifference includes what no server would combine.
func TestCheckListsEveryDifference(t *testing.T) {
	t.Parallel()
	config := stream.Config("S", "p", 3, 1<<40)
	require.Empty(t, stream.Check(&jetstream.StreamInfo{Config: config}, "p"), "replicas and bytes are the operator's choice")

	config.MaxMsgs = 0
	config.Metadata = map[string]string{"_nats.ver": "2"}
	require.Empty(t, stream.Check(&jetstream.StreamInfo{Config: config}, "p"), "0 is no limit either")

	config.Sealed, config.Mirror, config.AllowMsgCounter = true, &jetstream.StreamSource{}, true
	config.PersistMode = jetstream.AsyncPersistMode
	require.Equal(t, []stream.Difference{
		{Setting: "persist_mode", Found: "Async", Expected: "Default"},
		{Setting: "sealed", Found: "true", Expected: "false"},
		{Setting: "allow_msg_counter", Found: "true", Expected: "false"},
		{Setting: "mirror", Found: "present", Expected: "none"},
	}, stream.Check(&jetstream.StreamInfo{Config: config}, "p"))
}
