//go:build race

package ledger_test

// historiesByDefault is smaller under the race detector, which makes the fold
// several times slower.
const historiesByDefault = 2000
