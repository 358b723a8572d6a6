package family_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/alerts"
	"fairlead.dev/deploy/charts/internal/dashboard"
	"fairlead.dev/deploy/charts/internal/exported"
	"fairlead.dev/deploy/charts/internal/helm"
)

// TestDashboards checks that dashboards show the metrics that programs export, that no panel is empty in a world with samples of all of
// them, and that the charts ship them.
func TestDashboards(t *testing.T) {
	t.Parallel()
	runEach(t, allCharts(t), func(t *testing.T, c chart) {
		d := dashboard.Read(t, c.path)
		d.AssertShows(t, exported.Read(t, c.name))
		d.AssertHasData(t, filepath.Join("..", strings.ReplaceAll(c.name, "-", ""), "testdata", "series.txt"))
		d.AssertLegends(t)
		d.AssertLayout(t)
		d.AssertShipped(t, c.required)
	})
}

func TestAlertsUseMetricsThatExist(t *testing.T) {
	t.Parallel()
	runEach(t, allCharts(t), func(t *testing.T, c chart) {
		known := exported.Read(t, c.name)
		for _, r := range alerts.Read(t, c.path) {
			t.Run(r.Alert, func(t *testing.T) {
				t.Parallel()
				assert.NotEmpty(t, known.AssertKnown(t, r.Expr))
				alerts.AssertDescribed(t, r)
			})
		}
	})
}

// TestEveryAlertHasARunbook compares the alerts with the headings of the operations guides.
func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	runEach(t, allCharts(t), func(t *testing.T, c chart) {
		prefix := "(?i:" + strings.ReplaceAll(c.name, "-", "") + ")"
		alerts.AssertRunbooks(t, alerts.Read(t, c.path), prefix, c.readGuide(t))
	})
}

// TestLinksOfGuides checks that links within an operations guide lead to a heading.
func TestLinksOfGuides(t *testing.T) {
	t.Parallel()
	runEach(t, allCharts(t), func(t *testing.T, c chart) {
		guide := c.readGuide(t)
		anchors := map[string]bool{}
		for _, match := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(guide, -1) {
			anchors[strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(match[1], ",", "")), " ", "-")] = true
		}
		for _, match := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(guide, -1) {
			assert.True(t, anchors[match[1]], "no heading for #%s", match[1])
		}
	})
}

// readGuide returns the operations guide of a chart.
func (c chart) readGuide(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(helm.Repository(), "docs", "operations", c.name+".md"))
	require.NoError(t, err)
	return string(raw)
}
