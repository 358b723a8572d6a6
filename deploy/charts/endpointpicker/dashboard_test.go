package endpointpicker_test

import (
	"path/filepath"
	"testing"

	"fairlead.dev/deploy/charts/internal/dashboard"
	"fairlead.dev/deploy/charts/internal/exported"
)

// names returns the metrics of the program. The label pool is not in its table: it depends on the configuration.
func names(t *testing.T) *exported.Names {
	t.Helper()
	found := exported.ReadTable(t, "endpoint-picker")
	for name, labels := range found.Metrics {
		found.Metrics[name] = append(labels, "pool")
	}
	return found
}

func TestDashboardUsesMetricsThatExist(t *testing.T) {
	t.Parallel()
	dashboard.Read(t, chart).AssertShows(t, names(t))
}

func TestDashboardHasData(t *testing.T) {
	t.Parallel()
	dashboard.Read(t, chart).AssertHasData(t, filepath.Join("testdata", "series.txt"))
}

func TestLegendsNameLabels(t *testing.T) {
	t.Parallel()
	dashboard.Read(t, chart).AssertLegends(t)
}

func TestPanelsDoNotOverlap(t *testing.T) {
	t.Parallel()
	dashboard.Read(t, chart).AssertLayout(t)
}

func TestDashboardConfigMap(t *testing.T) {
	t.Parallel()
	dashboard.Read(t, chart).AssertShipped(t, pool(nil))
}
