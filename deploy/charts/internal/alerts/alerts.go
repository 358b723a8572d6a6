// Package alerts tests the alerts of a chart: which of them fire in a world of time series.
package alerts

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/prom"
)

// Case is the series of a few replicas, one sample each minute, and the labels of the alerts that fire at a time.
type Case struct {
	Alert  string
	Name   string
	Series []string
	At     time.Duration
	Want   []string
}

// Read returns the alerts of a chart.
func Read(t *testing.T, chart string) []prom.Rule {
	t.Helper()
	rules, err := prom.ReadRules(filepath.Join(chart, "rules", "alerts.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, rules)
	return rules
}

// AssertDescribed checks the severity and the annotations of an alert.
func AssertDescribed(t *testing.T, r prom.Rule) {
	t.Helper()
	assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"])
	assert.NotEmpty(t, r.Annotations["summary"])
	assert.NotEmpty(t, r.Annotations["description"])
}

// AssertRunbooks checks that a guide has a heading for each alert. The names of alerts begin with prefix.
func AssertRunbooks(t *testing.T, rules []prom.Rule, prefix, guide string) {
	t.Helper()
	var names, headings []string
	for _, r := range rules {
		names = append(names, r.Alert)
	}
	for _, match := range regexp.MustCompile(`(?m)^### (`+prefix+`\w+)$`).FindAllStringSubmatch(guide, -1) {
		headings = append(headings, match[1])
	}
	assert.ElementsMatch(t, names, headings)
}

// AssertFire checks the cases, in parallel subtests, and that each alert has a case in which it fires and one in which it does not.
func AssertFire(t *testing.T, rules []prom.Rule, cases []Case) {
	t.Helper()
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, tt := range cases {
		fires[tt.Alert], rests[tt.Alert] = fires[tt.Alert] || len(tt.Want) > 0, rests[tt.Alert] || len(tt.Want) == 0
		t.Run(tt.Alert+"/"+tt.Name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(rules, func(r prom.Rule) bool { return r.Alert == tt.Alert })
			require.GreaterOrEqual(t, i, 0, "no such alert")
			world, err := prom.NewWorld(tt.Series...)
			require.NoError(t, err)
			firing, err := world.Firing(t.Context(), rules[i], tt.At)
			require.NoError(t, err)
			assert.ElementsMatch(t, tt.Want, firing)
		})
	}
	for _, r := range rules {
		assert.True(t, fires[r.Alert], "%s: no test in which it fires", r.Alert)
		assert.True(t, rests[r.Alert], "%s: no test in which it does not fire", r.Alert)
	}
}
