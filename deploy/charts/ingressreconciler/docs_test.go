package ingressreconciler_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/exported"
)

func readReasons(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repository, "docs", "operations", "ingress-reconciler-reasons.md"))
	require.NoError(t, err)
	return string(raw)
}

// TestEveryReasonHasALine compares the reasons in the source of the program with the page of reasons.
func TestEveryReasonHasALine(t *testing.T) {
	t.Parallel()
	guide := readReasons(t)
	row := regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (True|False|Unknown|none) \\| ([^|]+) \\| ([^|]+) \\|$")
	known := []string{"ConfigurationLoaded"} // of Events
	for _, reason := range known {
		assert.Contains(t, guide, "`"+reason+"`")
	}
	for _, match := range row.FindAllStringSubmatch(guide, -1) {
		known = append(known, match[1])
	}
	assert.ElementsMatch(t, exported.Read(t, "ingress-reconciler").Reasons, known, "each reason has one line in the table of docs/operations/ingress-reconciler-reasons.md")
}
