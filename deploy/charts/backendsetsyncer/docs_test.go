package backendsetsyncer_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/source"
)

func readReasons(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repository, "docs", "operations", program+"-reasons.md"))
	require.NoError(t, err)
	return string(raw)
}

// TestEveryReasonHasALine compares the reasons of the condition with the tables of the page of reasons.
func TestEveryReasonHasALine(t *testing.T) {
	t.Parallel()
	reasons, err := source.Reasons(filepath.Join(repository, "pkg", "apis", "fairlead"))
	require.NoError(t, err)
	require.Subset(t, reasons, []string{"Synced", "Pending", "NotAllowed"})
	var explained []string
	for _, match := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\|").FindAllStringSubmatch(readReasons(t), -1) {
		explained = append(explained, match[1])
	}
	for _, reason := range reasons {
		assert.Contains(t, explained, reason, "each reason has a line in a table of docs/operations/backendset-syncer-reasons.md")
	}
}
