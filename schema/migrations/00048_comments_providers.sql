-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again. The same words for
-- both generations and the view.
COMMENT ON TABLE ledger_a.providers IS 'Definitions of providers, append-only: every version that ever held.';
COMMENT ON COLUMN ledger_a.providers.name IS 'Name of the provider.';
COMMENT ON COLUMN ledger_a.providers.seq IS 'Stream sequence of the definition. The newest one below an entry is the one that holds for it.';
COMMENT ON COLUMN ledger_a.providers.type IS 'What speaks to it: http or exec.';
COMMENT ON COLUMN ledger_a.providers.definition IS 'The definition, without secrets.';
COMMENT ON COLUMN ledger_a.providers.digest IS 'SHA-256 of the canonical definition: an identical one again is a duplicate.';
COMMENT ON COLUMN ledger_a.providers.at IS 'When the stream stored the definition.';
COMMENT ON COLUMN ledger_a.providers.actor IS 'Who defined it, as the entry says. NULL: it does not say.';

COMMENT ON TABLE ledger_b.providers IS 'Definitions of providers, append-only: every version that ever held.';
COMMENT ON COLUMN ledger_b.providers.name IS 'Name of the provider.';
COMMENT ON COLUMN ledger_b.providers.seq IS 'Stream sequence of the definition. The newest one below an entry is the one that holds for it.';
COMMENT ON COLUMN ledger_b.providers.type IS 'What speaks to it: http or exec.';
COMMENT ON COLUMN ledger_b.providers.definition IS 'The definition, without secrets.';
COMMENT ON COLUMN ledger_b.providers.digest IS 'SHA-256 of the canonical definition: an identical one again is a duplicate.';
COMMENT ON COLUMN ledger_b.providers.at IS 'When the stream stored the definition.';
COMMENT ON COLUMN ledger_b.providers.actor IS 'Who defined it, as the entry says. NULL: it does not say.';

COMMENT ON VIEW ledger.providers IS 'Definitions of providers, append-only: every version that ever held.';
COMMENT ON COLUMN ledger.providers.name IS 'Name of the provider.';
COMMENT ON COLUMN ledger.providers.seq IS 'Stream sequence of the definition. The newest one below an entry is the one that holds for it.';
COMMENT ON COLUMN ledger.providers.type IS 'What speaks to it: http or exec.';
COMMENT ON COLUMN ledger.providers.definition IS 'The definition, without secrets.';
COMMENT ON COLUMN ledger.providers.digest IS 'SHA-256 of the canonical definition: an identical one again is a duplicate.';
COMMENT ON COLUMN ledger.providers.at IS 'When the stream stored the definition.';
COMMENT ON COLUMN ledger.providers.actor IS 'Who defined it, as the entry says. NULL: it does not say.';
