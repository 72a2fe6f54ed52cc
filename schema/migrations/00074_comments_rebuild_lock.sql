-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again.
COMMENT ON TABLE ledger.rebuild_lock IS 'A single row, locked by the rebuild that is at work.';
COMMENT ON COLUMN ledger.rebuild_lock.id IS 'Always 1: there is one row.';
