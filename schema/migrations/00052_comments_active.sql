-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again.
COMMENT ON TABLE ledger.active IS 'The pointer to the live generation: a single row, moved by rebuild in one transaction.';
COMMENT ON COLUMN ledger.active.id IS 'Always 1: there is one row.';
COMMENT ON COLUMN ledger.active.name IS 'The schema that is live, ledger_a or ledger_b. The views show that one and nothing of the other.';
COMMENT ON COLUMN ledger.active.epoch IS 'Grows with every switch. A checkpoint moves only under the epoch that it was written with, so a switch fences the old generation''s writers.';
COMMENT ON COLUMN ledger.active.switched_at IS 'When the pointer was moved last, by the database''s clock.';
