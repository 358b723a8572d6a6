package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/pkg/golden"
)

func TestPageHasAllMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	everything(t, r)
	golden.Metrics(t, "../../../../../docs/reference/metrics/endpoint-picker.md", r, olderName)
}

// olderName returns a sentence with the older name of a metric of the llm-d router.
func olderName(metric string) string {
	name, is := strings.CutPrefix(metric, upstream+"_")
	if older, known := olderNames[name]; is && known {
		return "Was `" + older.name + "`."
	}
	return ""
}
