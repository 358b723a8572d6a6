package ingressreconciler_test

import (
	"encoding/json"
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

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
	"fairlead.dev/deploy/charts/internal/prom"
)

// dashboard is what the tests read of Grafana's model.
type dashboard struct {
	UID         string  `json:"uid"`
	Title       string  `json:"title"`
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
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct{ Expr, LegendFormat string }
}

func readDashboard(t *testing.T) (d dashboard, raw []byte) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(chart, "dashboards", "ingress-reconciler.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &d))
	return d, raw
}

// variables stand in for those of Grafana.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$job", ".*")

// expressions returns the queries of a dashboard, by the title of their panel.
func (d *dashboard) expressions() map[string][]string {
	found := map[string][]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			found[p.Title] = append(found[p.Title], variables.Replace(target.Expr))
		}
	}
	for _, a := range d.Annotations.List {
		found["annotations"] = append(found["annotations"], variables.Replace(a.Expr))
	}
	return found
}

func TestDashboardUsesMetricsThatExist(t *testing.T) {
	t.Parallel()
	d, _ := readDashboard(t)
	known := readNames(t)
	shown := map[string]bool{}
	for title, expressions := range d.expressions() {
		for _, expr := range expressions {
			assert.NotContains(t, expr, "$", "%s: unknown variable", title)
			for _, name := range known.assertKnown(t, expr) {
				shown[name] = true
			}
		}
	}
	for name := range known.metrics {
		if strings.HasPrefix(name, "fairlead_") || strings.HasPrefix(name, "workqueue_") {
			assert.True(t, shown[name], "no panel shows %s", name)
		}
	}
	for _, v := range d.Templating.List {
		if inner, found := strings.CutPrefix(v.Definition, "label_values("); found {
			expr, label, _ := strings.Cut(strings.TrimSuffix(inner, ")"), ", ")
			known.assertKnown(t, variables.Replace(expr))
			assert.Contains(t, targetLabels, label)
		}
	}
}

// TestDashboardHasData queries each panel where every metric has samples. A wrong value of a label makes an empty panel.
func TestDashboardHasData(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "series.txt"))
	require.NoError(t, err)
	world, err := prom.NewWorld(strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })...)
	require.NoError(t, err)
	d, _ := readDashboard(t)
	for title, expressions := range d.expressions() {
		for _, expr := range expressions {
			matrix, err := world.Query(t.Context(), expr, 20*time.Minute, 30*time.Minute)
			require.NoError(t, err)
			assert.NotEmpty(t, matrix, "%s: %s", title, expr)
		}
	}
}

// TestLegendsNameLabels checks that each label of a legend is one that the query leaves in its result.
func TestLegendsNameLabels(t *testing.T) {
	t.Parallel()
	label := regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	d, _ := readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			uses, err := prom.Uses(variables.Replace(target.Expr))
			require.NoError(t, err)
			for _, match := range label.FindAllStringSubmatch(target.LegendFormat, -1) {
				assert.Contains(t, uses[0].Labels, match[1], "%s: legend %s", p.Title, target.LegendFormat)
			}
		}
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	t.Parallel()
	d, _ := readDashboard(t)
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

// TestDashboardConfigMap checks that the chart ships the file as it is, under the label that Grafana's sidecar looks for.
func TestDashboardConfigMap(t *testing.T) {
	t.Parallel()
	_, raw := readDashboard(t)
	set := objects.Render(t, chart, helm.Values{"dashboards": helm.Values{"enabled": true, "annotations": helm.Values{"grafana_folder": "LLM"}}})
	found := slices.DeleteFunc(objects.All[corev1.ConfigMap](t, set), func(c *corev1.ConfigMap) bool { return c.Labels["grafana_dashboard"] != "1" })
	require.Len(t, found, 1)
	assert.JSONEq(t, string(raw), found[0].Data["ingress-reconciler.json"])
	assert.Equal(t, "LLM", found[0].Annotations["grafana_folder"])
	assert.Len(t, objects.All[corev1.ConfigMap](t, objects.Render(t, chart, nil)), 1, "only the configuration by default")
}
