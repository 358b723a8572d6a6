package collect

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"fairlead.dev/services/variant-autoscaler/internal/promclient"
)

// figures are the values of an answer, by figure and pod. Values without a pod are under the empty name. NaN, infinite and impossible
// values are left out: what is missing is not zero.
type figures map[string]map[string]float64

// maxValue bounds values, so that no sum of them overflows. Times are the largest that a sane server reports.
const maxValue = 1e15

// maxTokens bounds the labels with the size of a KV cache.
const maxTokens = 1e12

// readFigures returns the values of an answer on pods of a namespace.
func readFigures(namespace string, vector []promclient.Series) figures {
	f := figures{}
	for _, s := range vector {
		figure, value := s.Labels[labelFigure], s.Value
		if math.IsNaN(value) || math.Abs(value) > maxValue || (value < 0 && figure != runningGrowth && figure != waitingGrowth) {
			continue
		}
		if figure == cacheInfo {
			figure, value = kvTokens, cacheSize(s.Labels)
			if value == 0 {
				continue
			}
		}
		pod, ok := podOf(namespace, s.Labels)
		if !ok {
			continue
		}
		if f[figure] == nil {
			f[figure] = map[string]float64{}
		}
		f[figure][pod] += value
	}
	return f
}

// podOf returns the pod of an element: for the picker's metrics, the one that they name instead of the picker's own.
func podOf(namespace string, labels map[string]string) (string, bool) {
	for _, label := range []string{"endpoint_name", "pod_name"} {
		if pod := labels[label]; pod != "" {
			return pod, true
		}
	}
	switch labels[labelFigure] {
	case picks, first + picks, slowdown, tokenTime, backlog, batch: // a scrape that does not honor labels renames theirs
		pod := cmp.Or(labels[ofPod], labels["exported_pod"], labels["pod"])
		if namespaceOfPod, name, named := strings.Cut(pod, "/"); named {
			return name, namespaceOfPod == namespace
		}
		return pod, true // of the pool's namespace
	}
	return labels["pod"], true
}

// cacheSize returns the tokens of a KV cache. Hybrid models have fewer of them than their blocks times the size of a block.
func cacheSize(labels map[string]string) float64 {
	if n := parseTokens(labels[labelTokens]); n > 0 {
		return n
	}
	return parseTokens(labels[labelBlocks]) * parseTokens(labels[labelBlockSize])
}

func parseTokens(text string) float64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxTokens {
		return 0
	}
	return float64(n)
}

// value returns the value of a figure at a pod.
func (f figures) value(figure, pod string) (float64, bool) {
	v, ok := f[figure][pod]
	return v, ok
}

// podSum returns the sum of a figure over pods. Pods without it add nothing.
func (f figures) podSum(figure string, pods []string) float64 {
	total := 0.0
	for _, pod := range pods {
		total += f[figure][pod]
	}
	return total
}

// podMean returns the mean of a figure over the pods that have it, or zero.
func (f figures) podMean(figure string, pods []string) float64 {
	total, n := 0.0, 0
	for _, pod := range pods {
		if v, ok := f.value(figure, pod); ok {
			total += v
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return total / float64(n)
}

// podRatio returns the sum of one figure over that of another, or zero.
func (f figures) podRatio(sum, count string, pods []string) float64 {
	n := f.podSum(count, pods)
	if n <= 0 {
		return 0
	}
	return f.podSum(sum, pods) / n
}

// hasValue reports whether a figure without pods is there.
func (f figures) hasValue(figure string) bool {
	_, ok := f.value(figure, "")
	return ok
}
