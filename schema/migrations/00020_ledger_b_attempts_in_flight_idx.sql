-- +goose NO TRANSACTION
-- +goose Up
-- Operators list unknown attempts oldest first and count what is in flight, by state. Ended
-- attempts, nearly all, are not in it. Its second column is a time, so it is to be judged by
-- measurement.
CREATE INDEX IF NOT EXISTS attempts_in_flight_idx ON ledger_b.attempts (state, requested_at, job_id, number)
    WHERE state IN ('starting', 'running', 'unknown');
