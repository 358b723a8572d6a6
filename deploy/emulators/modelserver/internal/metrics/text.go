package metrics

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
)

type label struct{ name, value string }

var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func header(name, kind, help string) string {
	return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n"
}

// series returns the text of a sample up to its value. It sorts labels by name.
func series(name string, labels ...label) string {
	if len(labels) == 0 {
		return name + " "
	}
	labels = slices.Clone(labels)
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString(name)
	for i, l := range labels {
		b.WriteString([]string{"{", ","}[min(i, 1)])
		b.WriteString(l.name + `="` + labelEscapes.Replace(l.value) + `"`)
	}
	b.WriteString("} ")
	return b.String()
}

func appendSample(dst []byte, prefix string, v float64) []byte {
	dst = append(dst, prefix...)
	return append(appendFloat(dst, v), '\n')
}

// appendFloat formats v like Python's client: the shortest digits, always with a point or an exponent.
func appendFloat(dst []byte, v float64) []byte {
	if n := int64(v); float64(n) == v && 0 <= n && n < 1_000_000 {
		return append(strconv.AppendInt(dst, n, 10), ".0"...)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, v, 'g', -1, 64)
	if !bytes.ContainsAny(dst[start:], ".e") {
		dst = append(dst, ".0"...)
	}
	return dst
}

// histogramLayout is the text of a histogram's samples up to their values.
type histogramLayout struct {
	buckets    []string // the last one is +Inf
	count, sum string
}

func newHistogramLayout(name string, bounds []float64, labels ...label) histogramLayout {
	l := histogramLayout{count: series(name+"_count", labels...), sum: series(name+"_sum", labels...)}
	withBound := func(le string) string {
		return series(name+"_bucket", append(slices.Clone(labels), label{"le", le})...)
	}
	for _, bound := range bounds {
		l.buckets = append(l.buckets, withBound(string(appendFloat(nil, bound))))
	}
	l.buckets = append(l.buckets, withBound("+Inf"))
	return l
}

func (l histogramLayout) append(dst []byte, h *engine.Histogram) []byte {
	total := uint64(0)
	for i, prefix := range l.buckets {
		total += h.Counts[i]
		dst = appendSample(dst, prefix, float64(total))
	}
	dst = appendSample(dst, l.count, float64(total))
	return appendSample(dst, l.sum, h.Sum)
}
