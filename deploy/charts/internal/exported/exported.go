// Package exported knows the metrics of a program, with their labels, and its reasons of conditions. Tests of alerts and dashboards
// compare expressions with them.
package exported

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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/prom"
	"fairlead.dev/deploy/charts/internal/source"
)

// documented matches a row of the table of metrics of a program in docs/reference/metrics. A test of the program compares the table with its
// registry.
var documented = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [a-z]+ \\| ([a-z_`, ]*) \\|")

// Names are what expressions may use.
type Names struct {
	Metrics map[string][]string // with their labels
	Reasons []string
}

// Read returns the names of a program that has controllers. Its own metrics and their labels are those of the table in
// docs/reference/metrics, which must have every name of the source. Reasons are those of its packages and of further folders of the repository.
func Read(t *testing.T, program string, further ...string) *Names {
	t.Helper()
	names := read(t, program, []string{"controller", "leader"}, further)
	require.Contains(t, names.Metrics, "workqueue_depth")
	return names
}

// ReadWithoutQueues is Read for a program without the work queues of package controller.
func ReadWithoutQueues(t *testing.T, program string, further ...string) *Names {
	t.Helper()
	return read(t, program, []string{"leader"}, further)
}

// read returns names. packages are those of pkg that export metrics.
func read(t *testing.T, program string, packages, further []string) *Names {
	t.Helper()
	repository := helm.Repository()
	service := filepath.Join(repository, "services", program)
	exporters := []string{filepath.Join(service, "internal", "metrics")}
	for _, name := range packages {
		exporters = append(exporters, filepath.Join(repository, "pkg", name))
	}
	inSource, err := source.Metrics(exporters...)
	require.NoError(t, err)
	require.Contains(t, inSource, "fairlead_leader")
	metrics := readTable(t, program)
	assert.ElementsMatch(t, inSource, slices.Collect(maps.Keys(metrics)), "the source, and the table of the program in docs/reference/metrics")
	for _, name := range runtimeMetrics() {
		metrics[name] = nil
	}
	folders := []string{filepath.Join(service, "internal")}
	for _, folder := range further {
		folders = append(folders, filepath.Join(repository, folder))
	}
	reasons, err := source.Reasons(folders...)
	require.NoError(t, err)
	require.NotEmpty(t, reasons)
	return &Names{Metrics: metrics, Reasons: reasons}
}

// ReadTable returns the metrics of the table of a program whose own tests compare it with its registry, and no reasons.
func ReadTable(t *testing.T, program string) *Names {
	t.Helper()
	metrics := readTable(t, program)
	require.NotEmpty(t, metrics)
	for _, name := range runtimeMetrics() {
		metrics[name] = nil
	}
	return &Names{Metrics: metrics}
}

// readTable returns the metrics of the table of a program, with their labels.
func readTable(t *testing.T, program string) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(helm.Repository(), "docs", "reference", "metrics", program+".md"))
	require.NoError(t, err)
	metrics := map[string][]string{}
	for _, match := range documented.FindAllStringSubmatch(string(page), -1) {
		metrics[match[1]] = strings.FieldsFunc(match[2], func(r rune) bool { return strings.ContainsRune("`, ", r) })
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

// TargetLabels returns the labels that a ServiceMonitor adds.
func TargetLabels() []string {
	return []string{"namespace", "job", "pod", "instance", "service", "endpoint"}
}

// AssertKnown checks that an expression uses metrics, labels and reasons that the program exports, and returns the metrics.
func (n *Names) AssertKnown(t *testing.T, expr string) []string {
	t.Helper()
	uses, err := prom.Uses(expr)
	require.NoError(t, err)
	var used []string
	for _, use := range uses {
		name, known := use.Metric, TargetLabels()
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if base, is := strings.CutSuffix(use.Metric, suffix); is && n.Metrics[use.Metric] == nil {
				if name = base; suffix == "_bucket" {
					known = append(known, "le")
				}
			}
		}
		labels, found := n.Metrics[name]
		if !assert.True(t, found, "no package of the program exports metric %s", name) {
			continue
		}
		used = append(used, name)
		for _, label := range labels {
			known = append(known, label)
			if slices.Contains(TargetLabels(), label) {
				known = append(known, "exported_"+label) // the label of the target has its name
			}
		}
		assert.Subset(t, known, use.Labels, "labels of %s", use.Metric)
		for _, m := range use.Matchers {
			if m.Name == "reason" {
				assert.Subset(t, n.Reasons, strings.Split(m.Value, "|"), "reasons of conditions")
			}
		}
	}
	return used
}
