-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again.
COMMENT ON VIEW ledger.races IS 'Attempts that lost their job to another attempt or to a cancel: who won, who lost, how late, at what cost.';
COMMENT ON COLUMN ledger.races.job_id IS 'The job.';
COMMENT ON COLUMN ledger.races.owner_id IS 'Whose job it is.';
COMMENT ON COLUMN ledger.races.kind IS 'The kind of work.';
COMMENT ON COLUMN ledger.races.winner_attempt IS 'The attempt whose result the job has. NULL: the job was cancelled, no result won.';
COMMENT ON COLUMN ledger.races.winner_provider IS 'The winner''s provider. NULL: no result won.';
COMMENT ON COLUMN ledger.races.winner_finished_at IS 'When the winner finished. NULL: no result won.';
COMMENT ON COLUMN ledger.races.loser_attempt IS 'The attempt whose result, if it had one, was dropped.';
COMMENT ON COLUMN ledger.races.loser_provider IS 'The loser''s provider.';
COMMENT ON COLUMN ledger.races.loser_state IS 'superseded (it finished, its result was dropped), cancelled (called off by the winner before it began), or what a person had resolved it to before its result came in.';
COMMENT ON COLUMN ledger.races.loser_finished_at IS 'When the loser ended, or, where a person had resolved it before, when its result last came in.';
COMMENT ON COLUMN ledger.races.late IS 'How long after the job had settled the loser ended: loser_finished_at - job completed_at (or cancelled_at). Negative: a resolved attempt returned before the winner.';
COMMENT ON COLUMN ledger.races.loser_seconds IS 'How long the loser ran, in seconds: time paid for nothing. NULL: it never started.';
COMMENT ON COLUMN ledger.races.loser_usage IS 'What the loser consumed, as its provider reported it. NULL: not reported.';
