package metrics

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/golden"
)

// The lines of the README between which its table of metrics is.
const (
	readme     = "../../README.md"
	tableBegin = "<!-- metrics: `make golden` writes this table -->\n"
	tableEnd   = "<!-- end of metrics -->\n"
)

func TestREADMEHasAllMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	everything(t, r)
	families, err := r.Gather()
	require.NoError(t, err)
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), tableBegin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, tableEnd)
	require.True(t, found)
	golden.File(t, readme, []byte(before+tableBegin+table(families)+tableEnd+after))
}

func table(families []*dto.MetricFamily) string {
	var b strings.Builder
	b.WriteString("\n| metric | type | labels | |\n|---|---|---|---|\n")
	for _, f := range families {
		var labels []string
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if name := "`" + l.GetName() + "`"; !slices.Contains(labels, name) {
					labels = append(labels, name)
				}
			}
		}
		older := ""
		if o, known := olderNames[strings.TrimPrefix(f.GetName(), upstream+"_")]; known && strings.HasPrefix(f.GetName(), upstream) {
			older = " Was `" + o.name + "`."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s%s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp(), older)
	}
	b.WriteString("\n")
	return b.String()
}
