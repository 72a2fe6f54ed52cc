-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again. The same words for
-- both generations and the view.
COMMENT ON TABLE ledger_a.rejections IS 'One row per entry that was conflicting, refused or malformed: what changed nothing, and why.';
COMMENT ON COLUMN ledger_a.rejections.bucket IS 'seq mod 16. It leads the key so that new rows do not all land at the end of one range.';
COMMENT ON COLUMN ledger_a.rejections.seq IS 'Stream sequence of the rejected entry.';
COMMENT ON COLUMN ledger_a.rejections.at IS 'When the stream stored the entry.';
COMMENT ON COLUMN ledger_a.rejections.entry IS 'The kind of entry, such as job.request or attempt.complete.';
COMMENT ON COLUMN ledger_a.rejections.actor IS 'Who sent it, as the entry says. NULL: it does not say, or cannot be read.';
COMMENT ON COLUMN ledger_a.rejections.owner_id IS 'The owner that the entry names. NULL: none, or cannot be read.';
COMMENT ON COLUMN ledger_a.rejections.idempotency_key IS 'The key that the entry carries. NULL: none, or cannot be read.';
COMMENT ON COLUMN ledger_a.rejections.kind IS 'The kind of work that the entry names. NULL: none.';
COMMENT ON COLUMN ledger_a.rejections.provider IS 'The provider that the entry or its subject names. NULL: none.';
COMMENT ON COLUMN ledger_a.rejections.job_id IS 'The job that the entry is about, whether or not it exists. NULL: cannot be told.';
COMMENT ON COLUMN ledger_a.rejections.attempt IS 'The attempt that the entry is about. NULL: none.';
COMMENT ON COLUMN ledger_a.rejections.decision IS 'conflict (same key, another intent), refused (understood, not allowed now) or malformed (not understood).';
COMMENT ON COLUMN ledger_a.rejections.reason IS 'The reason as a stable name, such as already_claimed, fenced or result_already_claimed.';
COMMENT ON COLUMN ledger_a.rejections.detail IS 'The reason in words, with the place where there is one. NULL: nothing to add.';
COMMENT ON COLUMN ledger_a.rejections.raw IS 'The first 4 KiB of a malformed entry; the stream keeps all of it. NULL for every other decision.';

COMMENT ON TABLE ledger_b.rejections IS 'One row per entry that was conflicting, refused or malformed: what changed nothing, and why.';
COMMENT ON COLUMN ledger_b.rejections.bucket IS 'seq mod 16. It leads the key so that new rows do not all land at the end of one range.';
COMMENT ON COLUMN ledger_b.rejections.seq IS 'Stream sequence of the rejected entry.';
COMMENT ON COLUMN ledger_b.rejections.at IS 'When the stream stored the entry.';
COMMENT ON COLUMN ledger_b.rejections.entry IS 'The kind of entry, such as job.request or attempt.complete.';
COMMENT ON COLUMN ledger_b.rejections.actor IS 'Who sent it, as the entry says. NULL: it does not say, or cannot be read.';
COMMENT ON COLUMN ledger_b.rejections.owner_id IS 'The owner that the entry names. NULL: none, or cannot be read.';
COMMENT ON COLUMN ledger_b.rejections.idempotency_key IS 'The key that the entry carries. NULL: none, or cannot be read.';
COMMENT ON COLUMN ledger_b.rejections.kind IS 'The kind of work that the entry names. NULL: none.';
COMMENT ON COLUMN ledger_b.rejections.provider IS 'The provider that the entry or its subject names. NULL: none.';
COMMENT ON COLUMN ledger_b.rejections.job_id IS 'The job that the entry is about, whether or not it exists. NULL: cannot be told.';
COMMENT ON COLUMN ledger_b.rejections.attempt IS 'The attempt that the entry is about. NULL: none.';
COMMENT ON COLUMN ledger_b.rejections.decision IS 'conflict (same key, another intent), refused (understood, not allowed now) or malformed (not understood).';
COMMENT ON COLUMN ledger_b.rejections.reason IS 'The reason as a stable name, such as already_claimed, fenced or result_already_claimed.';
COMMENT ON COLUMN ledger_b.rejections.detail IS 'The reason in words, with the place where there is one. NULL: nothing to add.';
COMMENT ON COLUMN ledger_b.rejections.raw IS 'The first 4 KiB of a malformed entry; the stream keeps all of it. NULL for every other decision.';

COMMENT ON VIEW ledger.rejections IS 'One row per entry that was conflicting, refused or malformed: what changed nothing, and why.';
COMMENT ON COLUMN ledger.rejections.bucket IS 'seq mod 16. It leads the key so that new rows do not all land at the end of one range.';
COMMENT ON COLUMN ledger.rejections.seq IS 'Stream sequence of the rejected entry.';
COMMENT ON COLUMN ledger.rejections.at IS 'When the stream stored the entry.';
COMMENT ON COLUMN ledger.rejections.entry IS 'The kind of entry, such as job.request or attempt.complete.';
COMMENT ON COLUMN ledger.rejections.actor IS 'Who sent it, as the entry says. NULL: it does not say, or cannot be read.';
COMMENT ON COLUMN ledger.rejections.owner_id IS 'The owner that the entry names. NULL: none, or cannot be read.';
COMMENT ON COLUMN ledger.rejections.idempotency_key IS 'The key that the entry carries. NULL: none, or cannot be read.';
COMMENT ON COLUMN ledger.rejections.kind IS 'The kind of work that the entry names. NULL: none.';
COMMENT ON COLUMN ledger.rejections.provider IS 'The provider that the entry or its subject names. NULL: none.';
COMMENT ON COLUMN ledger.rejections.job_id IS 'The job that the entry is about, whether or not it exists. NULL: cannot be told.';
COMMENT ON COLUMN ledger.rejections.attempt IS 'The attempt that the entry is about. NULL: none.';
COMMENT ON COLUMN ledger.rejections.decision IS 'conflict (same key, another intent), refused (understood, not allowed now) or malformed (not understood).';
COMMENT ON COLUMN ledger.rejections.reason IS 'The reason as a stable name, such as already_claimed, fenced or result_already_claimed.';
COMMENT ON COLUMN ledger.rejections.detail IS 'The reason in words, with the place where there is one. NULL: nothing to add.';
COMMENT ON COLUMN ledger.rejections.raw IS 'The first 4 KiB of a malformed entry; the stream keeps all of it. NULL for every other decision.';
