-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again.
COMMENT ON VIEW ledger.unknown_attempts IS 'Attempts whose outcome nobody knows yet: how long, and what they block. Oldest first: ORDER BY since.';
COMMENT ON COLUMN ledger.unknown_attempts.age IS 'How long its outcome has been unknown.';
COMMENT ON COLUMN ledger.unknown_attempts.job_id IS 'The job that it is an attempt at.';
COMMENT ON COLUMN ledger.unknown_attempts.attempt IS 'The attempt''s number.';
COMMENT ON COLUMN ledger.unknown_attempts.owner_id IS 'Whose job it is.';
COMMENT ON COLUMN ledger.unknown_attempts.idempotency_key IS 'The owner''s name for the intent.';
COMMENT ON COLUMN ledger.unknown_attempts.kind IS 'The kind of work.';
COMMENT ON COLUMN ledger.unknown_attempts.provider IS 'The provider that was, or may have been, called: whom to ask for the truth.';
COMMENT ON COLUMN ledger.unknown_attempts.provider_ref IS 'The provider''s own id of the call. NULL: none is known.';
COMMENT ON COLUMN ledger.unknown_attempts.since IS 'Since when its outcome is unknown.';
COMMENT ON COLUMN ledger.unknown_attempts.deadline IS 'The deadline that it missed, or had when it ended ambiguously. NULL: had none.';
COMMENT ON COLUMN ledger.unknown_attempts.worker IS 'The worker that made the call.';
COMMENT ON COLUMN ledger.unknown_attempts.failure_class IS 'What made the outcome unknown, as the worker reported it. NULL: nothing was reported.';
COMMENT ON COLUMN ledger.unknown_attempts.failure_message IS 'The same in words. NULL: nothing was reported.';
COMMENT ON COLUMN ledger.unknown_attempts.job_state IS 'State of the job: unknown means that this attempt blocks it; a settled job only waits to learn what this attempt did and cost.';
COMMENT ON COLUMN ledger.unknown_attempts.blocks_job IS 'Whether the job can go on only once this attempt is resolved.';
COMMENT ON COLUMN ledger.unknown_attempts.other_attempts IS 'How many other attempts the job has, of every state.';
COMMENT ON COLUMN ledger.unknown_attempts.other_in_flight IS 'How many of them are starting, running or unknown too.';
