-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again. These two tables
-- are goose's; Migrate has it put them here.
COMMENT ON TABLE ledger.schema_version IS 'Which migrations have been applied, one row each. Kept by goose.';
COMMENT ON COLUMN ledger.schema_version.id IS 'Row number.';
COMMENT ON COLUMN ledger.schema_version.version_id IS 'Number of the migration, as in its file name; 0 marks the table as complete.';
COMMENT ON COLUMN ledger.schema_version.is_applied IS 'Always true: there are no migrations backwards.';
COMMENT ON COLUMN ledger.schema_version.tstamp IS 'When it was applied.';

COMMENT ON TABLE ledger.schema_lock IS 'The lock that lets one migration run at a time. Kept by goose.';
COMMENT ON COLUMN ledger.schema_lock.lock_id IS 'Which lock; there is one.';
COMMENT ON COLUMN ledger.schema_lock.locked IS 'Whether somebody holds it.';
COMMENT ON COLUMN ledger.schema_lock.locked_at IS 'Since when. NULL: nobody holds it.';
COMMENT ON COLUMN ledger.schema_lock.locked_by IS 'Host, process and a random token of the holder. NULL: nobody holds it.';
COMMENT ON COLUMN ledger.schema_lock.lease_expires_at IS 'When others may take it over if the holder has not renewed it. NULL: nobody holds it.';
COMMENT ON COLUMN ledger.schema_lock.updated_at IS 'When the row changed last.';
