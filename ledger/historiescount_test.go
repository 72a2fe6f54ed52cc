//go:build !race

package ledger_test

// historiesByDefault is how many histories a plain run of the tests generates.
const historiesByDefault = 10_000
