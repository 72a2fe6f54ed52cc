// Package workertest is the conformance suite for workers in any language. Its
// tests play the ledger, on a real NATS server with a real stream, and the
// endpoint that the worker calls; the worker is a process that they start, kill,
// freeze and cut off. The worker of package workers and the one in
// examples/worker-node pass it, and so does yours, run in the repository:
//
//	JOBLEDGER_WORKER='python3 /path/to/worker.py' go test ./internal/workertest -v -run Own
//
// The command is run by sh and finds in its environment
//
//	NATS_URL            where NATS is; the connection may come and go
//	LEDGER_STREAM       the ledger's stream
//	LEDGER_PREFIX       what every subject starts with
//	LEDGER_PROVIDER     the provider whose attempts it works on
//	LEDGER_CONCURRENCY  how many of them at a time
//	LEDGER_GRACE_MS     how long calls may go on after SIGTERM, in milliseconds
//	WORK_URL            the endpoint to be called for each of them
//
// It follows the worker protocol of docs/contract.md. For each attempt that it has
// claimed it makes one POST to WORK_URL, as a provider of type http does: the body
// {"job_id","attempt","kind","input"}, the headers Idempotency-Key, Ledger-Job-Id
// and Ledger-Attempt, and the answers' meanings are in the contract as well.
package workertest
