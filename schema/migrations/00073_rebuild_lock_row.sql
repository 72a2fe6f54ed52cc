-- +goose NO TRANSACTION
-- +goose Up
-- The one row. A lock needs something to lock.
INSERT INTO ledger.rebuild_lock (id)
VALUES (1)
ON CONFLICT (id) DO NOTHING;
