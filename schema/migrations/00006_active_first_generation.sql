-- +goose NO TRANSACTION
-- +goose Up
-- A new ledger lives in ledger_a. Applied again it leaves the pointer where it is.
INSERT INTO ledger.active (id, name, epoch, switched_at)
VALUES (1, 'ledger_a', 1, now())
ON CONFLICT (id) DO NOTHING;
