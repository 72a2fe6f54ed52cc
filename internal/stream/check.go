package stream

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Difference is one setting of a stream that is not as a ledger needs it.
type Difference struct {
	// Setting is the name in the server's JSON, such as "deny_purge".
	Setting string
	// Found and Expected are for people to read.
	Found, Expected string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: found %s, expected %s", d.Setting, d.Found, d.Expected)
}

// Check compares a stream with Config under prefix and returns what differs,
// in a fixed order; nothing means that it is a ledger's stream. What an
// operator may choose is not compared: replicas, byte limit, compression,
// placement, republishing, description, metadata.
func Check(info *jetstream.StreamInfo, prefix string) []Difference {
	found := info.Config
	expected := Config(found.Name, prefix, found.Replicas, found.MaxBytes)
	var c comparison

	compare(&c, "subjects", sorted(found.Subjects), sorted(expected.Subjects))
	compare(&c, "storage", found.Storage, expected.Storage)
	compare(&c, "retention", found.Retention, expected.Retention)
	compare(&c, "discard", found.Discard, expected.Discard)
	compare(&c, "discard_new_per_subject", found.DiscardNewPerSubject, false)
	compare(&c, "duplicate_window", found.Duplicates, expected.Duplicates)
	compare(&c, "persist_mode", found.PersistMode, expected.PersistMode)
	compare(&c, "no_ack", found.NoAck, false)
	compare(&c, "sealed", found.Sealed, false)

	compare(&c, "max_age", found.MaxAge, 0)
	compareLimit(&c, "max_consumers", found.MaxConsumers)
	compareLimit(&c, "max_msgs", found.MaxMsgs)
	compareLimit(&c, "max_msgs_per_subject", found.MaxMsgsPerSubject)
	compare(&c, "max_msg_size", found.MaxMsgSize, expected.MaxMsgSize)
	compare(&c, "consumer_limits", found.ConsumerLimits, jetstream.StreamConsumerLimits{})

	compare(&c, "deny_delete", found.DenyDelete, true)
	compare(&c, "deny_purge", found.DenyPurge, true)
	compare(&c, "allow_direct", found.AllowDirect, true)
	compare(&c, "allow_atomic", found.AllowAtomicPublish, true)
	compare(&c, "allow_batched", found.AllowBatchPublish, true)
	compare(&c, "allow_rollup_hdrs", found.AllowRollup, false)
	compare(&c, "allow_msg_ttl", found.AllowMsgTTL, false)
	compare(&c, "allow_msg_counter", found.AllowMsgCounter, false)
	compare(&c, "allow_msg_schedules", found.AllowMsgSchedules, false)
	compare(&c, "subject_delete_marker_ttl", found.SubjectDeleteMarkerTTL, 0)

	// Entries that came another way than by being published here, or under
	// another subject than the sender's, are not the ledger's.
	compare(&c, "mirror", presence(found.Mirror != nil), presence(false))
	compare(&c, "sources", presence(len(found.Sources) > 0), presence(false))
	compare(&c, "subject_transform", presence(found.SubjectTransform != nil), presence(false))
	compare(&c, "first_seq", max(found.FirstSeq, 1), 1)
	return c.differences
}

type comparison struct{ differences []Difference }

func compare[T comparable](c *comparison, setting string, found, expected T) {
	if found != expected {
		c.differ(setting, fmt.Sprint(found), fmt.Sprint(expected))
	}
}

// compareLimit compares a limit for which the server says "none" as 0 or -1.
func compareLimit[T int | int32 | int64](c *comparison, setting string, found T) {
	if found > 0 {
		c.differ(setting, fmt.Sprint(found), "no limit")
	}
}

func (c *comparison) differ(setting, found, expected string) {
	c.differences = append(c.differences, Difference{Setting: setting, Found: found, Expected: expected})
}

func sorted(subjects []string) string {
	return strings.Join(slices.Sorted(slices.Values(subjects)), " ")
}

func presence(present bool) string {
	if present {
		return "present"
	}
	return "none"
}
