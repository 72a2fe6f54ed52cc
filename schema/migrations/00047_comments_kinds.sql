-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again. The same words for
-- both generations and the view.
COMMENT ON TABLE ledger_a.kinds IS 'Definitions of kinds of work, append-only: every version that ever held.';
COMMENT ON COLUMN ledger_a.kinds.name IS 'Name of the kind.';
COMMENT ON COLUMN ledger_a.kinds.seq IS 'Stream sequence of the definition. The newest one below an entry is the one that holds for it.';
COMMENT ON COLUMN ledger_a.kinds.definition IS 'The definition, without secrets.';
COMMENT ON COLUMN ledger_a.kinds.digest IS 'SHA-256 of the canonical definition: an identical one again is a duplicate.';
COMMENT ON COLUMN ledger_a.kinds.at IS 'When the stream stored the definition.';
COMMENT ON COLUMN ledger_a.kinds.actor IS 'Who defined it, as the entry says. NULL: it does not say.';

COMMENT ON TABLE ledger_b.kinds IS 'Definitions of kinds of work, append-only: every version that ever held.';
COMMENT ON COLUMN ledger_b.kinds.name IS 'Name of the kind.';
COMMENT ON COLUMN ledger_b.kinds.seq IS 'Stream sequence of the definition. The newest one below an entry is the one that holds for it.';
COMMENT ON COLUMN ledger_b.kinds.definition IS 'The definition, without secrets.';
COMMENT ON COLUMN ledger_b.kinds.digest IS 'SHA-256 of the canonical definition: an identical one again is a duplicate.';
COMMENT ON COLUMN ledger_b.kinds.at IS 'When the stream stored the definition.';
COMMENT ON COLUMN ledger_b.kinds.actor IS 'Who defined it, as the entry says. NULL: it does not say.';

COMMENT ON VIEW ledger.kinds IS 'Definitions of kinds of work, append-only: every version that ever held.';
COMMENT ON COLUMN ledger.kinds.name IS 'Name of the kind.';
COMMENT ON COLUMN ledger.kinds.seq IS 'Stream sequence of the definition. The newest one below an entry is the one that holds for it.';
COMMENT ON COLUMN ledger.kinds.definition IS 'The definition, without secrets.';
COMMENT ON COLUMN ledger.kinds.digest IS 'SHA-256 of the canonical definition: an identical one again is a duplicate.';
COMMENT ON COLUMN ledger.kinds.at IS 'When the stream stored the definition.';
COMMENT ON COLUMN ledger.kinds.actor IS 'Who defined it, as the entry says. NULL: it does not say.';
