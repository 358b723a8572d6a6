package endpointpicker_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/prom"
)

func readRules(t *testing.T) []prom.Rule {
	t.Helper()
	rules, err := prom.ReadRules(filepath.Join(chart, "rules", "alerts.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, rules)
	return rules
}

// TestAlertsUseMetricsThatExist compares the metrics of the alerts with the source of the program.
func TestAlertsUseMetricsThatExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(helm.Repository(), "services", "endpoint-picker", "internal", "metrics", "*.go"))
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(raw)
	}
	for _, r := range readRules(t) {
		uses, err := prom.Uses(r.Expr)
		require.NoError(t, err)
		assert.NotEmpty(t, uses, r.Alert)
		for _, use := range uses {
			assert.Regexp(t, `"`+regexp.QuoteMeta(strings.TrimPrefix(use.Metric, "fairlead_picker_"))+`"`, code.String(), r.Alert)
		}
		assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"])
		assert.NotEmpty(t, r.Annotations["summary"])
		assert.NotEmpty(t, r.Annotations["description"])
	}
}

// tests of alerts: the series of a few replicas, one sample each minute, and the labels of the alerts that fire.
var tests = []struct {
	alert  string
	name   string
	series []string
	at     time.Duration
	want   []string
}{
	{alert: "EndpointPickerDown", name: "nothing is scraped", at: 10 * time.Minute, want: []string{`{}`}},
	{alert: "EndpointPickerDown", name: "one replica is left", series: []string{`fairlead_picker_endpoints_ready{job="p"} 0x20`}, at: 20 * time.Minute},
	{
		alert: "EndpointPickerNoEndpoints", name: "on all replicas", at: 10 * time.Minute,
		series: []string{`fairlead_picker_endpoints_ready{job="p", pod="a"} 0x20`, `fairlead_picker_endpoints_ready{job="p", pod="b"} 0x20`},
		want:   []string{`{job="p"}`},
	},
	{
		alert: "EndpointPickerNoEndpoints", name: "a replica that starts", at: 10 * time.Minute,
		series: []string{`fairlead_picker_endpoints_ready{job="p", pod="a"} 0x20`, `fairlead_picker_endpoints_ready{job="p", pod="b"} 3x20`},
	},
	{
		alert: "EndpointPickerRequestsRejected", name: "a tenth", at: 20 * time.Minute,
		series: []string{`fairlead_picker_picks_total{job="p", result="picked"} 0+90x30`, `fairlead_picker_picks_total{job="p", result="no_endpoints"} 0+10x30`},
		want:   []string{`{job="p"}`},
	},
	{
		alert: "EndpointPickerRequestsRejected", name: "a hundredth", at: 20 * time.Minute,
		series: []string{`fairlead_picker_picks_total{job="p", result="picked"} 0+99x30`, `fairlead_picker_picks_total{job="p", result="no_endpoints"} 0+1x30`},
	},
	{
		alert: "EndpointPickerRequestsRejected", name: "no requests", at: 20 * time.Minute,
		series: []string{`fairlead_picker_picks_total{job="p", result="picked"} 7x30`, `fairlead_picker_picks_total{job="p", result="no_endpoints"} 0x30`},
	},
	{
		alert: "EndpointPickerScrapesFailing", name: "an endpoint, for all replicas", at: 30 * time.Minute,
		series: []string{
			`fairlead_picker_endpoint_scrape_failures_total{job="p", pod="a", endpoint="metrics", exported_endpoint="10.0.0.1:8000"} 0+60x40`,
			`fairlead_picker_endpoint_scrape_failures_total{job="p", pod="b", endpoint="metrics", exported_endpoint="10.0.0.1:8000"} 0+60x40`,
			`fairlead_picker_endpoint_scrape_failures_total{job="p", pod="a", endpoint="metrics", exported_endpoint="10.0.0.2:8000"} 0x40`,
		},
		want: []string{`{endpoint="metrics", exported_endpoint="10.0.0.1:8000", job="p"}`},
	},
	{
		alert: "EndpointPickerScrapesFailing", name: "without the operator", at: 30 * time.Minute,
		series: []string{`fairlead_picker_endpoint_scrape_failures_total{job="p", endpoint="10.0.0.1:8000"} 0+60x40`},
		want:   []string{`{endpoint="10.0.0.1:8000", job="p"}`},
	},
	{
		alert: "EndpointPickerScrapesFailing", name: "for one replica alone", at: 30 * time.Minute,
		series: []string{
			`fairlead_picker_endpoint_scrape_failures_total{job="p", pod="a", exported_endpoint="10.0.0.1:8000"} 0+60x40`,
			`fairlead_picker_endpoint_scrape_failures_total{job="p", pod="b", exported_endpoint="10.0.0.1:8000"} 3x40`,
		},
	},
	{
		alert: "EndpointPickerConfigInvalid", name: "on one replica", at: 10 * time.Minute,
		series: []string{`fairlead_picker_config_last_reload_successful{job="p", pod="a"} 1x20`, `fairlead_picker_config_last_reload_successful{job="p", pod="b"} 0x20`},
		want:   []string{`{job="p"}`},
	},
	{
		alert: "EndpointPickerConfigInvalid", name: "for a moment", at: 10 * time.Minute,
		series: []string{`fairlead_picker_config_last_reload_successful{job="p"} 1x7 0x10`},
	},
	{
		alert: "EndpointPickerCertificateExpiring", name: "in an hour", at: 20 * time.Minute,
		series: []string{`fairlead_picker_certificate_expiry_timestamp_seconds{job="p", server="ext_proc"} 4800x40`},
		want:   []string{`{job="p", server="ext_proc"}`},
	},
	{
		alert: "EndpointPickerCertificateExpiring", name: "in a month", at: 20 * time.Minute,
		series: []string{`fairlead_picker_certificate_expiry_timestamp_seconds{job="p", server="ext_proc"} 2600000x40`},
	},
}

func TestAlertsFire(t *testing.T) {
	t.Parallel()
	rules := readRules(t)
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, tt := range tests {
		i := slices.IndexFunc(rules, func(r prom.Rule) bool { return r.Alert == tt.alert })
		require.GreaterOrEqual(t, i, 0, "there is no alert %s", tt.alert)
		world, err := prom.NewWorld(tt.series...)
		require.NoError(t, err)
		firing, err := world.Firing(t.Context(), rules[i], tt.at)
		require.NoError(t, err)
		assert.ElementsMatch(t, tt.want, firing, "%s, %s", tt.alert, tt.name)
		fires[tt.alert], rests[tt.alert] = fires[tt.alert] || len(tt.want) > 0, rests[tt.alert] || len(tt.want) == 0
	}
	for _, r := range rules {
		assert.True(t, fires[r.Alert], "%s: no test in which it fires", r.Alert)
		assert.True(t, rests[r.Alert], "%s: no test in which it does not fire", r.Alert)
	}
}
