//go:build system || long

package flow

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// metric returns the sum of all series of a metric, or the value of one series with its labels; -1 if there is none.
func (e *edge) metric(name string) float64 {
	e.t.Helper()
	request, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, "http://"+e.address("metrics")+"/metrics", nil)
	require.NoError(e.t, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return -1
	}
	defer response.Body.Close()
	sum, found := 0.0, false
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, is := seriesValue(lines.Text(), name); is {
			sum, found = sum+value, true
		}
	}
	if !found {
		return -1
	}
	return sum
}

// seriesValue returns the value of a line of metrics, if it is of a series or of a metric with any labels.
func seriesValue(line, name string) (value float64, found bool) {
	series, text, _ := strings.Cut(line, " ")
	of, _, _ := strings.Cut(series, "{")
	if of != name && series != name {
		return 0, false
	}
	value, err := strconv.ParseFloat(text, 64)
	return value, err == nil
}
