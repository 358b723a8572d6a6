package flow

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// metric returns the sum of all series of a metric, -1 if there is none.
func (e *edge) metric(name string) float64 {
	e.t.Helper()
	request, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, "http://"+e.cfg.HTTP.MetricsAddress+"/metrics", nil)
	require.NoError(e.t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return -1
	}
	defer response.Body.Close()
	sum, found := 0.0, false
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		series, text, _ := strings.Cut(lines.Text(), " ")
		if of, _, _ := strings.Cut(series, "{"); of != name {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		require.NoError(e.t, err)
		sum, found = sum+value, true
	}
	if !found {
		return -1
	}
	return sum
}
