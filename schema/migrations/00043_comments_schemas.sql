-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again.
COMMENT ON SCHEMA ledger IS 'The job ledger as readers see it: views over the live generation, views for analysts, and what belongs to no generation.';
COMMENT ON SCHEMA ledger_a IS 'A generation of the tables that are folded from the stream. Read ledger instead, which follows the live one.';
COMMENT ON SCHEMA ledger_b IS 'A generation of the tables that are folded from the stream. Read ledger instead, which follows the live one.';
