package nodepoolingress_test

import (
	"path/filepath"
	"testing"

	"fairlead.dev/deploy/charts/internal/dashboard"
	"fairlead.dev/deploy/charts/internal/exported"
)

// names returns the metrics and reasons of the program.
func names(t *testing.T) *exported.Names {
	t.Helper()
	return exported.Read(t, program, filepath.Join("pkg", "apis"), filepath.Join("pkg", "configmap"))
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
	dashboard.Read(t, chart).AssertShipped(t, nil)
}
