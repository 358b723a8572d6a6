package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "writes_total", Help: "Writes."}, []string{"resource", "result"})
	writes.WithLabelValues("routes", "created").Inc()
	writes.WithLabelValues("routes", "failed").Inc()
	r.MustRegister(writes, prometheus.NewGauge(prometheus.GaugeOpts{Name: "leader", Help: "1 while this replica leads."}))
	return r
}

func noteOfLeader(metric string) string {
	if metric == "leader" {
		return "Was `master`."
	}
	return ""
}

const wantTable = `
| metric | type | labels | description |
|---|---|---|---|
| ` + "`leader` | gauge |  | 1 while this replica leads. Was `master`. |" + `
| ` + "`writes_total` | counter | `resource`, `result` | Writes. |" + `

`

func TestMetricsTable(t *testing.T) {
	t.Parallel()
	families, err := newRegistry().Gather()
	require.NoError(t, err)
	assert.Equal(t, wantTable, metricsTable(families, noteOfLeader))
}

func TestMetricsPassesWhenTheFileHasTheTable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "README.md")
	text := strings.Join([]string{"# Title\n\n", metricsBegin, wantTable, metricsEnd, "\nThe rest\n"}, "")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	Metrics(t, file, newRegistry(), noteOfLeader)
}
