package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The definitions in the documentation of the policies can be applied.
func TestTheDocumentedPoliciesApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.serve("api,projector")
	text, err := os.ReadFile("../../docs/policies.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	require.NotEmpty(t, blocks)
	for i, block := range blocks {
		path := filepath.Join(w.dir, fmt.Sprintf("policy-%d.yaml", i))
		require.NoError(t, os.WriteFile(path, block[1], 0o600))
		w.run("kind", "apply", path).is(t, 0)
	}
	require.Equal(t, len(blocks)+1, w.number("SELECT count(DISTINCT name) FROM ledger.kinds"), "fail-over has two")
}
