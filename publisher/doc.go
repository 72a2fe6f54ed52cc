// Package publisher appends entries to the ledger's stream and learns what was
// decided about them.
//
// An Appender is the one way into the stream: it groups what is waiting, waits
// for the server's acknowledgement, repeats what got none under the same
// message id, and says exactly what is known when it gives up. A Client adds
// the decision that the projector publishes once the entry is folded. Package
// httpapi serves both to producers and operators.
//
// The package knows nothing of the tables; whoever needs them declares an
// interface.
package publisher
