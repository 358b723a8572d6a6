package modelserver

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostilePages are pages of the greatest size that cost most.
func hostilePages() map[string]func() io.Reader {
	whole := func(text string) func() io.Reader {
		text = strings.Repeat(text, maxPage/len(text))
		return func() io.Reader { return strings.NewReader(text) }
	}
	labels := &strings.Builder{}
	for i := range 1000 {
		fmt.Fprintf(labels, `l%d="",`, i)
	}
	priorities := &strings.Builder{}
	for i := 0; priorities.Len() < maxPage-100; i++ {
		fmt.Fprintf(priorities, "vllm:num_requests_running{p=\"%d\"} 1\n", i)
	}
	slow := whole("vllm:num_requests_running 1\n")
	return map[string]func() io.Reader{
		"empty lines":          whole("\n"),
		"series":               whole("vllm:num_requests_running 1\n"),
		"labels":               whole("vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1\n"),
		"many labels":          whole("vllm:num_requests_running{" + labels.String() + "} 1\n"),
		"sizes":                whole("vllm:cache_config_info{" + labels.String() + "} 1\n"),
		"adapters":             whole("vllm:lora_requests_info{" + labels.String() + "} 1\n"),
		"different":            func() io.Reader { return strings.NewReader(priorities.String()) },
		"near misses":          whole("vllm:k\n"),
		"no end":               whole("x"),
		"byte by byte":         func() io.Reader { return iotest.OneByteReader(slow()) },
		"a long line by bytes": func() io.Reader { return iotest.OneByteReader(bytes.NewReader(bytes.Repeat([]byte("x"), maxPage-1))) },
	}
}

// BenchmarkHostilePages shows the processor time of pages, beside the estimate.
func BenchmarkHostilePages(b *testing.B) {
	for name, page := range hostilePages() {
		b.Run(name, func(b *testing.B) {
			r, buf := vllm(b), make([]byte, maxLine)
			for b.Loop() {
				r.work = work{}
				_, _ = r.readPage(page(), buf)
			}
			b.ReportMetric(float64(r.work.estimatedTime().Nanoseconds()), "estimated-ns")
		})
	}
}

// The estimate of a page grows with everything that costs time. It does not depend on how busy the machine is.
func TestWorkOfPages(t *testing.T) {
	t.Parallel()
	for name, page := range hostilePages() {
		r := vllm(t)
		_, _ = r.readPage(page(), make([]byte, maxLine))
		assert.GreaterOrEqual(t, r.work.bytes, maxPage-maxLine, name)
		assert.Greater(t, r.work.estimatedTime(), 2*time.Millisecond, name)
	}
	r := vllm(t)
	_, err := r.readPage(strings.NewReader(samplePage(3, 1, 0.5)), make([]byte, maxLine))
	require.NoError(t, err)
	assert.Less(t, r.work.estimatedTime(), 100*time.Microsecond, "a usual page is never slowed")
	assert.Equal(t, 4, r.work.series)
}

// A page that arrives in many small pieces is scanned once.
func TestReadPageScansBytesOnce(t *testing.T) {
	t.Parallel()
	line := "vllm:num_requests_running{model_name=\"" + strings.Repeat("m", maxLine/2) + "\"} 3"
	for _, text := range []string{line + "\n", line, strings.Repeat(line+"\n", 3), strings.Repeat("x", 2*maxLine) + "\n" + line} {
		got, err := vllm(t).readPage(iotest.OneByteReader(strings.NewReader(text)), make([]byte, maxLine))
		require.NoError(t, err)
		assert.InDelta(t, 3, got.Running, 0)
	}
}

func TestCostOfAPageDelaysTheNext(t *testing.T) {
	t.Parallel()
	server := newModelServer(t, text("vllm:num_requests_running 1\n"+strings.Repeat("\n", 100_000)))
	s, _ := newScraper(t)
	w := newWorker(t, s, server.endpoint())
	w.scrapeOnce(time.Now())
	assert.Greater(t, w.worked, workOfConnection+100_000*workOfLine)
	w.scrapeOnce(time.Now())
	assert.Less(t, w.worked, workOfConnection+100_000*workOfLine+100*workOfKiB+100*workOfRead, "the connection is kept")
}
