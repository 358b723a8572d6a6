package ingressreconciler_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/prom"
	"fairlead.dev/deploy/charts/internal/source"
)

// service is the folder of the program, packages are those that define its metrics.
var (
	service  = filepath.Join(repository, "services", "ingress-reconciler")
	packages = []string{filepath.Join(service, "internal", "metrics"), filepath.Join(repository, "pkg", "controller"), filepath.Join(repository, "pkg", "leader")}
)

// documented matches a row of the README's table of metrics, which a test of the program compares with its registry.
var documented = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [a-z]+ \\| ([a-z_`, ]*) \\|")

// exported returns the metrics of the program with their labels: its own from the table of its README, and those of the Go runtime
// from its collectors. The table has every name of the source.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	names, err := source.Metrics(packages...)
	require.NoError(t, err)
	require.Contains(t, names, "fairlead_leader")
	require.Contains(t, names, "workqueue_depth")
	readme, err := os.ReadFile(filepath.Join(service, "README.md"))
	require.NoError(t, err)
	metrics := map[string][]string{}
	for _, match := range documented.FindAllStringSubmatch(string(readme), -1) {
		metrics[match[1]] = strings.FieldsFunc(match[2], func(r rune) bool { return strings.ContainsRune("`, ", r) })
	}
	assert.ElementsMatch(t, names, slices.Collect(maps.Keys(metrics)), "the source, and the table in the README of the program")
	for _, name := range runtimeMetrics() {
		metrics[name] = nil
	}
	return metrics
}

// runtimeMetrics returns the names of the metrics that client_golang's collectors export.
func runtimeMetrics() []string {
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	descriptions := make(chan *prometheus.Desc)
	go func() {
		collectors.NewGoCollector().Describe(descriptions)
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}).Describe(descriptions)
		close(descriptions)
	}()
	var names []string
	for d := range descriptions {
		names = append(names, name.FindStringSubmatch(d.String())[1])
	}
	return names
}

// targetLabels are those that a ServiceMonitor adds.
var targetLabels = []string{"namespace", "job", "pod", "instance", "service", "endpoint"}

// names are what expressions may use.
type names struct {
	metrics map[string][]string // with their labels
	reasons []string
}

func readNames(t *testing.T) names {
	t.Helper()
	return names{metrics: exported(t), reasons: allReasons(t)}
}

// assertKnown checks that an expression uses metrics, labels and reasons that the program exports, and returns the metrics.
func (n *names) assertKnown(t *testing.T, expr string) []string {
	t.Helper()
	uses, err := prom.Uses(expr)
	require.NoError(t, err)
	var used []string
	for _, use := range uses {
		name, known := use.Metric, slices.Clone(targetLabels)
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base, is := strings.CutSuffix(use.Metric, suffix); is && n.metrics[use.Metric] == nil {
				if name = base; suffix == "_bucket" {
					known = append(known, "le")
				}
			}
		}
		exportedLabels, found := n.metrics[name]
		if !assert.True(t, found, "no package of the program exports metric %s", name) {
			continue
		}
		used = append(used, name)
		assert.Subset(t, append(known, exportedLabels...), use.Labels, "labels of %s", use.Metric)
		for _, m := range use.Matchers {
			if m.Name == "reason" {
				assert.Subset(t, n.reasons, alternatives(m), "reasons of conditions")
			}
		}
	}
	return used
}

// alternatives returns the values that a matcher names.
func alternatives(m *labels.Matcher) []string { return strings.Split(m.Value, "|") }

// allReasons returns the reasons of conditions and Events.
func allReasons(t *testing.T) []string {
	t.Helper()
	reasons, err := source.Reasons(filepath.Join(service, "internal"), filepath.Join(repository, "pkg"))
	require.NoError(t, err)
	require.Subset(t, reasons, []string{"Programmed", "NoDomain", "GatewayNotFound", "NotWritten"})
	return reasons
}
