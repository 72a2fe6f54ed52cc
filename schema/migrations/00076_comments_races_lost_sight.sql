-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again.
COMMENT ON VIEW ledger.races IS 'Attempts that were at work when their job was settled by another attempt or by a cancel: who won, who lost, how late, at what cost.';
COMMENT ON COLUMN ledger.races.loser_state IS 'superseded (it finished, its result was dropped), unknown (it was told to stop, or its end is not known for another reason), failed or unsent (after the job was settled), cancelled (called off by the winner before it began), or what a person had resolved it to before its result came in.';
COMMENT ON COLUMN ledger.races.loser_finished_at IS 'When the loser ended, or, where a person had resolved it before, when its result last came in. NULL: it is unknown.';
COMMENT ON COLUMN ledger.races.late IS 'How long after the job had settled the loser ended or became unknown. Negative: it was unknown before, or a resolved attempt returned before the winner.';
COMMENT ON COLUMN ledger.races.loser_seconds IS 'How long the loser ran, in seconds: time paid for nothing. Of an unknown one: until it was unknown. NULL: it never started.';
