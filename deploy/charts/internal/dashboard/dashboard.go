// Package dashboard checks the Grafana dashboard of a chart: its queries, its legends and its layout.
package dashboard

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/deploy/charts/internal/exported"
	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
	"fairlead.dev/deploy/charts/internal/prom"
)

// Dashboard is what the tests read of Grafana's model.
type Dashboard struct {
	Panels      []panel `json:"panels"`
	Annotations struct {
		List []struct {
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []struct {
			Name, Definition string
		} `json:"list"`
	} `json:"templating"`

	chart string
	raw   []byte
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct{ Expr, LegendFormat string }
}

// Read returns the dashboard of a chart, which has the name of the chart.
func Read(t *testing.T, chart string) *Dashboard {
	t.Helper()
	d := &Dashboard{chart: chart}
	var err error
	d.raw, err = os.ReadFile(filepath.Join(chart, "dashboards", d.file()))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(d.raw, d))
	require.NotEmpty(t, d.Panels)
	return d
}

func (d *Dashboard) file() string { return filepath.Base(d.chart) + ".json" }

// withoutVariables replaces the variables of Grafana.
func withoutVariables(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$job", ".*").Replace(expr)
}

// expressions returns the queries, by the title of their panel.
func (d *Dashboard) expressions() map[string][]string {
	found := map[string][]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			found[p.Title] = append(found[p.Title], withoutVariables(target.Expr))
		}
	}
	for _, a := range d.Annotations.List {
		found["annotations"] = append(found["annotations"], withoutVariables(a.Expr))
	}
	return found
}

// AssertShows checks that the queries use metrics of the program, and that some panel shows each of them.
func (d *Dashboard) AssertShows(t *testing.T, names *exported.Names) {
	t.Helper()
	shown := map[string]bool{}
	for title, expressions := range d.expressions() {
		for _, expr := range expressions {
			assert.NotContains(t, expr, "$", "%s: unknown variable", title)
			for _, name := range names.AssertKnown(t, expr) {
				shown[name] = true
			}
		}
	}
	for name := range names.Metrics {
		if strings.HasPrefix(name, "fairlead_") || strings.HasPrefix(name, "workqueue_") {
			assert.True(t, shown[name], "no panel shows %s", name)
		}
	}
	for _, v := range d.Templating.List {
		if inner, found := strings.CutPrefix(v.Definition, "label_values("); found {
			expr, label, _ := strings.Cut(strings.TrimSuffix(inner, ")"), ", ")
			names.AssertKnown(t, withoutVariables(expr))
			assert.Contains(t, exported.TargetLabels(), label)
		}
	}
}

// AssertHasData queries each panel in a world where every metric has samples, one series a line. A wrong value of a label makes an
// empty panel.
func (d *Dashboard) AssertHasData(t *testing.T, seriesFile string) {
	t.Helper()
	text, err := os.ReadFile(seriesFile)
	require.NoError(t, err)
	world, err := prom.NewWorld(strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })...)
	require.NoError(t, err)
	for title, expressions := range d.expressions() {
		for _, expr := range expressions {
			matrix, err := world.Query(t.Context(), expr, 20*time.Minute, 30*time.Minute)
			require.NoError(t, err)
			assert.NotEmpty(t, matrix, "%s: %s", title, expr)
		}
	}
}

// AssertLegends checks that each label of a legend is one that the query leaves in its result.
func (d *Dashboard) AssertLegends(t *testing.T) {
	t.Helper()
	label := regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			uses, err := prom.Uses(withoutVariables(target.Expr))
			require.NoError(t, err)
			for _, match := range label.FindAllStringSubmatch(target.LegendFormat, -1) {
				assert.Contains(t, uses[0].Labels, match[1], "%s: legend %s", p.Title, target.LegendFormat)
			}
		}
	}
}

// AssertLayout checks that panels have different ids, titles and descriptions, and do not overlap.
func (d *Dashboard) AssertLayout(t *testing.T) {
	t.Helper()
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		assert.False(t, ids[p.ID], "%s: id %d is taken", p.Title, p.ID)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		if p.Type != "row" {
			assert.NotEmpty(t, p.Description, p.Title)
		}
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				assert.Empty(t, taken[cell], "%s overlaps", p.Title)
				taken[cell] = p.Title
			}
		}
	}
}

// AssertShipped checks that the chart ships the file as it is, under the label that Grafana's sidecar looks for, and not by default.
// required are the values that the chart has no default for.
func (d *Dashboard) AssertShipped(t *testing.T, required helm.Values) {
	t.Helper()
	values := helm.Values{"dashboards": helm.Values{"enabled": true, "annotations": helm.Values{"grafana_folder": "LLM"}}}
	maps.Copy(values, required)
	found := shipped(t, objects.Render(t, d.chart, values))
	require.Len(t, found, 1)
	assert.JSONEq(t, string(d.raw), found[0].Data[d.file()])
	assert.Equal(t, "LLM", found[0].Annotations["grafana_folder"])
	assert.Empty(t, shipped(t, objects.Render(t, d.chart, required)), "only the configuration by default")
}

// shipped returns the ConfigMaps with dashboards.
func shipped(t *testing.T, set objects.Set) []*corev1.ConfigMap {
	t.Helper()
	return slices.DeleteFunc(objects.All[corev1.ConfigMap](t, set),
		func(c *corev1.ConfigMap) bool { return c.Labels["grafana_dashboard"] != "1" })
}
