package ingressreconciler_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/alerts"
)

func readGuide(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repository, "docs", "operations", "ingress-reconciler.md"))
	require.NoError(t, err)
	return string(raw)
}

// TestEveryReasonHasALine compares the reasons in the source of the program with the operations guide.
func TestEveryReasonHasALine(t *testing.T) {
	t.Parallel()
	guide := readGuide(t)
	row := regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (True|False|Unknown|none) \\| ([^|]+) \\| ([^|]+) \\|$")
	known := []string{"ConfigurationLoaded", "UnknownConfiguration"} // Events
	for _, reason := range known {
		assert.Contains(t, guide, "`"+reason+"`")
	}
	for _, match := range row.FindAllStringSubmatch(guide, -1) {
		known = append(known, match[1])
	}
	assert.ElementsMatch(t, names(t).Reasons, known, "each reason has one line in the table of docs/operations/ingress-reconciler.md")
}

// TestEveryAlertHasARunbook compares the alerts with the headings of the operations guide.
func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	alerts.AssertRunbooks(t, alerts.Read(t, chart), "IngressReconciler", readGuide(t))
}

// TestLinksOfTheGuide checks that links within the guide lead to a heading.
func TestLinksOfTheGuide(t *testing.T) {
	t.Parallel()
	guide := readGuide(t)
	anchors := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(guide, -1) {
		anchors[strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(match[1], ",", "")), " ", "-")] = true
	}
	for _, match := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(guide, -1) {
		assert.True(t, anchors[match[1]], "no heading for #%s", match[1])
	}
}
