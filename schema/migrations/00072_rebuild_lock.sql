-- +goose NO TRANSACTION
-- +goose Up
-- A rebuild holds the row's lock as long as it works, and whoever finds it locked does not begin.
-- The database lets the lock go when the rebuild dies; nothing has to be cleaned up or to expire.
CREATE TABLE IF NOT EXISTS ledger.rebuild_lock (
    id INT8 NOT NULL,
    CONSTRAINT rebuild_lock_pkey PRIMARY KEY (id),
    CONSTRAINT rebuild_lock_single_row CHECK (id = 1)
);
