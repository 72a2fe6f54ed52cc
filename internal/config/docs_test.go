package config

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsCanBePasted: what docs/providers.md shows is accepted as it stands.
func TestDocsCanBePasted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/providers.md")
	require.NoError(t, err)
	types := map[string]bool{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
		c, err := decode("jobledger.yaml", block[1])
		require.NoError(t, err, "%s", block[1])
		for _, p := range c.Providers {
			types[p.Type()] = true
		}
	}
	for typ := range providerTypes {
		require.True(t, types[typ], "docs/providers.md shows no provider of type %s", typ)
	}
}
