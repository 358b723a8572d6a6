package golden

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Markers in a Markdown file around the table of metrics.
const (
	metricsBegin = "<!-- metrics: `make golden` writes this table -->\n"
	metricsEnd   = "<!-- end of metrics -->\n"
)

// Metrics compares the table of metrics in a Markdown file with the metrics of a registry, which needs at least one series
// of each. note returns a sentence to append to the help text of a metric, or nothing.
func Metrics(t *testing.T, path string, r prometheus.Gatherer, note func(metric string) string) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), metricsBegin)
	_, after, ends := strings.Cut(rest, metricsEnd)
	if !begins || !ends {
		t.Fatalf("%s: the lines before and after the table of metrics are missing:\n%s%s", path, metricsBegin, metricsEnd)
	}
	File(t, path, []byte(before+metricsBegin+metricsTable(families, note)+metricsEnd+after))
}

func metricsTable(families []*dto.MetricFamily, note func(string) string) string {
	var b strings.Builder
	b.WriteString("\n| metric | type | labels | description |\n|---|---|---|---|\n")
	for _, f := range families {
		help := f.GetHelp()
		if more := note(f.GetName()); more != "" {
			help += " " + more
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labelsOf(f), ", "), help)
	}
	b.WriteString("\n")
	return b.String()
}

// labelsOf returns the names of all labels of a metric's series, in the order of their first use.
func labelsOf(f *dto.MetricFamily) []string {
	var labels []string
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if name := "`" + l.GetName() + "`"; !slices.Contains(labels, name) {
				labels = append(labels, name)
			}
		}
	}
	return labels
}
