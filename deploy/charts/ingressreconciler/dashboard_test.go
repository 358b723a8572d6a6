package ingressreconciler_test

import (
	"path/filepath"
	"testing"

	"fairlead.dev/deploy/charts/internal/dashboard"
)

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
