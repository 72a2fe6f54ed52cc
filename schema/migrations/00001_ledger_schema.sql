-- +goose NO TRANSACTION
-- +goose Up
-- What readers use: views over the live generation, and what belongs to no generation. `Migrate`
-- creates this schema before goose starts, because goose's own tables live in it; it stands here
-- too so that these files are the whole schema.
CREATE SCHEMA IF NOT EXISTS ledger;
