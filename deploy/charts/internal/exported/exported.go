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

// documented matches a row of the table of metrics of a program in docs/reference/metrics. A test of the program compares the table with
// its registry.
var documented = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [a-z]+ \\| ([a-z_`, ]*) \\|")

// Names are what expressions may use.
type Names struct {
	Metrics map[string][]string // with their labels
	Reasons []string
}

// Read returns the names of a program. Its own metrics and their labels are those of its table in docs/reference/metrics.
func Read(t *testing.T, program string) *Names {
	t.Helper()
	names := &Names{Metrics: readTable(t, program)}
	switch program {
	case "edge-cache":
		names.Reasons = []string{"slow", "expired"} // of ended watches: no condition has reasons
	case "endpoint-picker":
		names.Reasons = []string{"busy", "file"} // of lost records
		for name, labels := range names.Metrics {
			names.Metrics[name] = append(labels, "pool") // it depends on the configuration, and is not in the table
		}
	case "variant-autoscaler": // it has no queues of package controller
		names.readSource(t, program, []string{"pkg/leader"}, []string{"pkg/apis/llmd", "pkg/configmap"})
	case "ingress-reconciler":
		names.readSource(t, program, []string{"pkg/controller", "pkg/leader"}, []string{"pkg/gatewayapi", "pkg/configmap"})
	default:
		names.readSource(t, program, []string{"pkg/controller", "pkg/leader"}, []string{"pkg/apis", "pkg/configmap"})
	}
	for _, name := range runtimeMetrics() {
		names.Metrics[name] = nil
	}
	return names
}

// readSource reads the reasons of a program, and checks that its table has every metric of the source. exporters and further are folders
// with metrics and with reasons, besides its own.
func (n *Names) readSource(t *testing.T, program string, exporters, further []string) {
	t.Helper()
	internal := "services/" + program + "/internal"
	inSource, err := source.Metrics(inRepository(append(exporters, internal+"/metrics"))...)
	require.NoError(t, err)
	require.Contains(t, inSource, "fairlead_leader")
	assert.ElementsMatch(t, inSource, slices.Collect(maps.Keys(n.Metrics)), "the source, and the table of the program in docs/reference/metrics")
	n.Reasons, err = source.Reasons(inRepository(append(further, internal))...)
	require.NoError(t, err)
	require.NotEmpty(t, n.Reasons)
}

func inRepository(folders []string) []string {
	var paths []string
	for _, folder := range folders {
		paths = append(paths, filepath.Join(helm.Repository(), folder))
	}
	return paths
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
	require.NotEmpty(t, metrics)
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
