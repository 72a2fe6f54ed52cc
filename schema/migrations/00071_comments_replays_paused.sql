-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again.
COMMENT ON COLUMN ledger_a.attempts.replays IS 'How often it was claimed again after it was unknown, by a reconciler whose provider declares replay.';
COMMENT ON COLUMN ledger_a.attempts.reason IS 'Why it was started: initial, retry, failover, manual (a person) or hedge (race mode).';
COMMENT ON COLUMN ledger_a.providers.paused IS 'Whether the brake is on from this row on: no attempt starts on the provider by itself.';
COMMENT ON COLUMN ledger_a.providers.pause_reason IS 'Why the brake is on or off. NULL: nobody said.';
COMMENT ON COLUMN ledger_b.attempts.replays IS 'How often it was claimed again after it was unknown, by a reconciler whose provider declares replay.';
COMMENT ON COLUMN ledger_b.attempts.reason IS 'Why it was started: initial, retry, failover, manual (a person) or hedge (race mode).';
COMMENT ON COLUMN ledger_b.providers.paused IS 'Whether the brake is on from this row on: no attempt starts on the provider by itself.';
COMMENT ON COLUMN ledger_b.providers.pause_reason IS 'Why the brake is on or off. NULL: nobody said.';
COMMENT ON COLUMN ledger.attempts.replays IS 'How often it was claimed again after it was unknown, by a reconciler whose provider declares replay.';
COMMENT ON COLUMN ledger.attempts.reason IS 'Why it was started: initial, retry, failover, manual (a person) or hedge (race mode).';
COMMENT ON COLUMN ledger.providers.paused IS 'Whether the brake is on from this row on: no attempt starts on the provider by itself.';
COMMENT ON COLUMN ledger.providers.pause_reason IS 'Why the brake is on or off. NULL: nobody said.';
