-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again. The same words for
-- both generations and the view.
COMMENT ON TABLE ledger_a.provider_verifications IS 'Proofs that a provider honours a contract, or does not: append-only. Without a current, passing one no automatic fail-over goes there.';
COMMENT ON COLUMN ledger_a.provider_verifications.name IS 'Name of the provider.';
COMMENT ON COLUMN ledger_a.provider_verifications.seq IS 'Stream sequence of the verification. The newest one below an entry is the one that holds for it.';
COMMENT ON COLUMN ledger_a.provider_verifications.kind IS 'The kind of work whose contract was verified.';
COMMENT ON COLUMN ledger_a.provider_verifications.contract IS 'Digest of that contract. NULL: the kind has none.';
COMMENT ON COLUMN ledger_a.provider_verifications.provider_digest IS 'providers.digest of the definition that was verified. Another definition is not covered.';
COMMENT ON COLUMN ledger_a.provider_verifications.passed IS 'Whether the provider honoured the contract in every case.';
COMMENT ON COLUMN ledger_a.provider_verifications.report IS 'The cases and what came of them. NULL: no report was given.';
COMMENT ON COLUMN ledger_a.provider_verifications.expires_at IS 'From then on it proves nothing. NULL: does not expire.';
COMMENT ON COLUMN ledger_a.provider_verifications.at IS 'When the stream stored the verification.';
COMMENT ON COLUMN ledger_a.provider_verifications.actor IS 'Who verified, as the entry says. NULL: it does not say.';

COMMENT ON TABLE ledger_b.provider_verifications IS 'Proofs that a provider honours a contract, or does not: append-only. Without a current, passing one no automatic fail-over goes there.';
COMMENT ON COLUMN ledger_b.provider_verifications.name IS 'Name of the provider.';
COMMENT ON COLUMN ledger_b.provider_verifications.seq IS 'Stream sequence of the verification. The newest one below an entry is the one that holds for it.';
COMMENT ON COLUMN ledger_b.provider_verifications.kind IS 'The kind of work whose contract was verified.';
COMMENT ON COLUMN ledger_b.provider_verifications.contract IS 'Digest of that contract. NULL: the kind has none.';
COMMENT ON COLUMN ledger_b.provider_verifications.provider_digest IS 'providers.digest of the definition that was verified. Another definition is not covered.';
COMMENT ON COLUMN ledger_b.provider_verifications.passed IS 'Whether the provider honoured the contract in every case.';
COMMENT ON COLUMN ledger_b.provider_verifications.report IS 'The cases and what came of them. NULL: no report was given.';
COMMENT ON COLUMN ledger_b.provider_verifications.expires_at IS 'From then on it proves nothing. NULL: does not expire.';
COMMENT ON COLUMN ledger_b.provider_verifications.at IS 'When the stream stored the verification.';
COMMENT ON COLUMN ledger_b.provider_verifications.actor IS 'Who verified, as the entry says. NULL: it does not say.';

COMMENT ON VIEW ledger.provider_verifications IS 'Proofs that a provider honours a contract, or does not: append-only. Without a current, passing one no automatic fail-over goes there.';
COMMENT ON COLUMN ledger.provider_verifications.name IS 'Name of the provider.';
COMMENT ON COLUMN ledger.provider_verifications.seq IS 'Stream sequence of the verification. The newest one below an entry is the one that holds for it.';
COMMENT ON COLUMN ledger.provider_verifications.kind IS 'The kind of work whose contract was verified.';
COMMENT ON COLUMN ledger.provider_verifications.contract IS 'Digest of that contract. NULL: the kind has none.';
COMMENT ON COLUMN ledger.provider_verifications.provider_digest IS 'providers.digest of the definition that was verified. Another definition is not covered.';
COMMENT ON COLUMN ledger.provider_verifications.passed IS 'Whether the provider honoured the contract in every case.';
COMMENT ON COLUMN ledger.provider_verifications.report IS 'The cases and what came of them. NULL: no report was given.';
COMMENT ON COLUMN ledger.provider_verifications.expires_at IS 'From then on it proves nothing. NULL: does not expire.';
COMMENT ON COLUMN ledger.provider_verifications.at IS 'When the stream stored the verification.';
COMMENT ON COLUMN ledger.provider_verifications.actor IS 'Who verified, as the entry says. NULL: it does not say.';
