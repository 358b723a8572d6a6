package stack

import (
	"strconv"
	"strings"
)

// Sum adds up the values of a metric over its label sets, from a page in the text format of Prometheus.
func Sum(page, metric string) float64 {
	var total float64
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(line, metric)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			total += value
		}
	}
	return total
}
