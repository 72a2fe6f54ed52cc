-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again.
COMMENT ON TABLE ledger.ledger_meta IS 'What init fixed for ever about this ledger: a single row, absent before init.';
COMMENT ON COLUMN ledger.ledger_meta.id IS 'Always 1: there is one row.';
COMMENT ON COLUMN ledger.ledger_meta.stream_name IS 'Name of the JetStream stream that these tables are folded from.';
COMMENT ON COLUMN ledger.ledger_meta.subject_prefix IS 'First token of every subject of this ledger.';
COMMENT ON COLUMN ledger.ledger_meta.shards IS 'Number of shards of the projection, fixed for ever by init.';
COMMENT ON COLUMN ledger.ledger_meta.first_chain IS 'Hash chain after the stream''s first entry: tells this stream from another of the same name. NULL: no entry was folded yet.';
COMMENT ON COLUMN ledger.ledger_meta.created_at IS 'When init created the ledger.';
