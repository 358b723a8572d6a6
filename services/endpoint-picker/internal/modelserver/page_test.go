package modelserver

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// reader returns a reading of a built-in engine's pages, without memory of any.
func reader(t testing.TB, engine string) *reading {
	t.Helper()
	p, err := CompilePlan(DefaultSettings(), DefaultOptions())
	require.NoError(t, err)
	return newReading(p.engines[engine])
}

func vllm(t testing.TB) *reading {
	t.Helper()
	return reader(t, EngineVLLM)
}

func TestReadPage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		give      string
		want      endpoint.Gauges
		wantError error
	}{
		{
			name: "current names",
			give: "# TYPE vllm:num_requests_running gauge\n" +
				"vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 7.0\n" +
				"vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 3.0\n" +
				"vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\n",
			want: endpoint.Gauges{Running: 7, Waiting: 3, KVUsage: 0.25},
		},
		{
			name: "old name of the KV cache gauge",
			give: "vllm:num_requests_waiting 1\nvllm:gpu_cache_usage_perc{engine=\"0\"} 0.5\nvllm:gpu_cache_usage_perc{engine=\"1\"} 0.25\n",
			want: endpoint.Gauges{Waiting: 1, KVUsage: 0.5},
		},
		{
			name: "the new name wins, whatever the order",
			give: "vllm:kv_cache_usage_perc 0.1\nvllm:gpu_cache_usage_perc 0.9\nvllm:num_requests_running 1\n",
			want: endpoint.Gauges{Running: 1, KVUsage: 0.1},
		},
		{
			name: "engines are summed, the fullest cache counts",
			give: "vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} 3\n" +
				"vllm:num_requests_waiting{engine=\"0\"} 4\nvllm:num_requests_waiting{engine=\"1\"} 5\n" +
				"vllm:kv_cache_usage_perc{engine=\"0\"} 0.9\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.2\n",
			want: endpoint.Gauges{Running: 5, Waiting: 9, KVUsage: 0.9},
		},
		{
			name: "braces, quotes and spaces in label values",
			give: "vllm:num_requests_running{model_name=\"a } 9 \\\" } b\\\\\"} 4\n",
			want: endpoint.Gauges{Running: 4},
		},
		{
			name: "blanks, exponents, timestamps, no newline at the end",
			give: " \tvllm:num_requests_running \t{ engine=\"0\" } \t 2e1 1700000000000\nvllm:num_requests_waiting 5",
			want: endpoint.Gauges{Running: 20, Waiting: 5},
		},
		{
			name: "longer names that begin alike are not meant",
			give: "vllm:num_requests_running_total 9\nvllm:num_requests_waiting_by_reason{reason=\"capacity\"} 9\nvllm:num_requests_running 1\n",
			want: endpoint.Gauges{Running: 1},
		},
		{
			name: "values that cannot be are left out",
			give: "vllm:num_requests_running NaN\nvllm:num_requests_running +Inf\nvllm:num_requests_running -1\n" +
				"vllm:num_requests_running 0x1p4\nvllm:num_requests_running 1_0\nvllm:num_requests_running many\nvllm:num_requests_running{a=\"b\n" +
				"vllm:num_requests_running\nvllm:num_requests_running{}\nvllm:num_requests_running 2\nvllm:kv_cache_usage_perc 17\n",
			want: endpoint.Gauges{Running: 2, KVUsage: 1},
		},
		{
			name: "size of the KV cache",
			give: "vllm:num_requests_running 1\nvllm:cache_config_info{block_size=\"32\",x_block_size=\"7\",num_cpu_blocks=\"9\",num_gpu_blocks=\"4096\"} 1.0\n",
			want: endpoint.Gauges{Running: 1, Blocks: 8192, Alignment: 32},
		},
		{
			name: "size of the KV cache that is not said",
			give: "vllm:num_requests_running 1\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1.0\nvllm:cache_config_info 1.0\n",
			want: endpoint.Gauges{Running: 1, Alignment: 16},
		},
		{
			name: "size of the KV cache in tokens: that of a hybrid model is not blocks times block size",
			give: "vllm:num_requests_running 1\nvllm:cache_config_info{block_size=\"128\",kv_cache_size_tokens=\"8192\",num_gpu_blocks=\"256\"} 1.0\n",
			want: endpoint.Gauges{Running: 1, Blocks: 512, Alignment: 128},
		},
		{
			name: "size of the KV cache in tokens that is not said",
			give: "vllm:num_requests_running 1\nvllm:cache_config_info{block_size=\"16\",kv_cache_size_tokens=\"None\",num_gpu_blocks=\"8\"} 1.0\n",
			want: endpoint.Gauges{Running: 1, Blocks: 8, Alignment: 16},
		},
		{
			name: "alignment of hits in a hybrid model",
			give: "vllm:num_requests_running 1\nvllm:cache_config_info{block_size=\"16\",cache_hit_alignment_tokens=\"640\"," +
				"effective_attention_block_size=\"128\",hash_block_size=\"16\"} 1.0\n",
			want: endpoint.Gauges{Running: 1, Alignment: 640},
		},
		{
			name: "alignment of hits without other layers",
			give: "vllm:num_requests_running 1\nvllm:cache_config_info{block_size=\"16\",cache_hit_alignment_tokens=\"None\"," +
				"effective_attention_block_size=\"128\",hash_block_size=\"None\"} 1.0\n",
			want: endpoint.Gauges{Running: 1, Alignment: 128},
		},
		{
			name: "prefix cache of several engines, beside other caches",
			give: "vllm:num_requests_running 1\nvllm:prefix_cache_queries_total{engine=\"0\"} 445.0\nvllm:prefix_cache_queries_total{engine=\"1\"} 5e12\n" +
				"vllm:prefix_cache_queries_created{engine=\"0\"} 1.7e9\nvllm:prefix_cache_hits_total{engine=\"0\"} 100\n" +
				"vllm:external_prefix_cache_queries_total 9\nvllm:external_prefix_cache_hits_total 9\nvllm:mm_cache_hits_total 9\n",
			want: endpoint.Gauges{Running: 1, Queries: 5e12 + 445, Hits: 100, Counted: true},
		},
		{
			name: "prefix cache of old versions",
			give: "vllm:num_requests_running 1\nvllm:gpu_prefix_cache_queries_total 40\nvllm:gpu_prefix_cache_hits_total 30\n",
			want: endpoint.Gauges{Running: 1, Queries: 40, Hits: 30, Counted: true},
		},
		{
			name: "counters that cannot be",
			give: "vllm:num_requests_running 1\nvllm:prefix_cache_queries_total 1e17\nvllm:prefix_cache_hits_total -3\n",
			want: endpoint.Gauges{Running: 1},
		},
		{
			name: "hits without queries",
			give: "vllm:num_requests_running 1\nvllm:prefix_cache_hits_total 3\n",
			want: endpoint.Gauges{Running: 1},
		},
		{name: "another server's page", give: "sglang:num_running_reqs 3\n", wantError: errNoGauges},
		{name: "KV usage alone says nothing of requests", give: "vllm:kv_cache_usage_perc 0.5\n", wantError: errNoGauges},
		{name: "empty page", give: "", wantError: errNoGauges},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for name, r := range map[string]io.Reader{
				"at once":           strings.NewReader(tt.give),
				"byte by byte":      iotest.OneByteReader(strings.NewReader(tt.give)),
				"data with the EOF": iotest.DataErrReader(strings.NewReader(tt.give)),
			} {
				got, err := vllm(t).readPage(r, make([]byte, 256))
				require.ErrorIs(t, err, tt.wantError, name)
				assert.Equal(t, tt.want, got, name)
			}
		})
	}
}

// A page of vLLM 0.32.0 with a model of one kind of layer.
func TestReadPageOfVLLM(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("testdata/vllm-0.32.0.txt")
	require.NoError(t, err)
	got, err := vllm(t).readPage(bytes.NewReader(page), make([]byte, maxLine))
	require.NoError(t, err)
	assert.Equal(t, endpoint.Gauges{Blocks: 2048, Alignment: 128, Counted: true}, got, "256 blocks of 128 tokens")
}

func TestReadPageSkipsLinesLongerThanItsBuffer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*64) // what is dropped ends just where a wanted name begins
	got, err := vllm(t).readPage(strings.NewReader("vllm:num_requests_running 1\n"+long+"vllm:num_requests_running 5\n"+
		"vllm:num_requests_waiting 2\n"+long+"vllm:num_requests_waiting 7"), make([]byte, 64))
	require.NoError(t, err)
	assert.Equal(t, endpoint.Gauges{Running: 1, Waiting: 2}, got)
}

func TestReadPageReportsWhatBrokeIt(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	_, err := vllm(t).readPage(iotest.ErrReader(broken), make([]byte, 64))
	require.ErrorIs(t, err, broken)

	_, err = vllm(t).readPage(endless{}, make([]byte, maxLine))
	require.ErrorIs(t, err, errLargePage)
}

// endless is a page that never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '\n'
	}
	return len(b), nil
}

// FuzzReadPage compares with Prometheus' own parser: of every page that it accepts, the same figures must be read,
// whatever the sizes of the reads.
func FuzzReadPage(f *testing.F) {
	f.Add([]byte(samplePage(3, 1, 0.5)), uint8(100))
	f.Add([]byte("vllm:num_requests_running{a=\"}\\\"\"} 4 17\n"), uint8(3))
	f.Add([]byte("# HELP vllm:num_requests_running x\nvllm:num_requests_running 1\nvllm:num_requests_running 1e3\n"), uint8(1))
	f.Add([]byte("vllm:num_requests_waiting{} NaN\nvllm:kv_cache_usage_perc\t-1\n"), uint8(0))
	f.Add([]byte(" vllm:num_requests_waiting\t{b=\"1\",} 0x10\n\n"), uint8(7))
	f.Add([]byte("vllm:num_requests_running 1\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"8\",kv_cache_size_tokens=\"64\"} 1\n"), uint8(9))
	f.Add([]byte("vllm:num_requests_running 1\nvllm:prefix_cache_queries_total 7e9\nvllm:prefix_cache_hits_total 5\nvllm:gpu_prefix_cache_hits_total 3\n"), uint8(5))
	f.Add([]byte("vllm:num_requests_running 1\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"8\"} 1\n"+
		"vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"a,b\\\\,\",waiting_lora_adapters=\"b,c\"} 1.5e9\n"), uint8(5))
	f.Add([]byte("vllm:num_requests_running{tp_rank=\"0\",dp_rank=\"0\"} 1\nvllm:num_requests_running{dp_rank=\"0\",tp_rank=\"1\"} 2\n"+
		"vllm:num_requests_running{dp_rank=\"1\",priority=\"5\"} 4\nvllm:num_requests_running{priority=\"\",dp_rank=\"1\"} 3\n"), uint8(11))
	buf, fresh := make([]byte, maxLine), vllm(f)
	f.Fuzz(func(t *testing.T, text []byte, step uint8) {
		got, err := newReading(fresh.matcher).readPage(bytes.NewReader(text), buf)
		stepped, steppedErr := newReading(fresh.matcher).readPage(&stepReader{text, int(step)%37 + 1}, buf)
		require.Equal(t, err, steppedErr)
		require.Equal(t, got, stepped)
		require.False(t, got.Waiting < 0 || got.Running < 0 || got.KVUsage < 0 || got.KVUsage > 1)

		families := parse(text)
		if families == nil || !sameReading(text, families) {
			return
		}
		want, ok := oracle(families)
		require.Equal(t, ok, err == nil)
		if ok {
			require.Equal(t, want, got)
		}
	})
}

// parse returns what Prometheus' parser makes of a page, nil if it refuses it: by an error, or by a panic as on "{}".
func parse(text []byte) (families map[string]*dto.MetricFamily) {
	defer func() {
		if recover() != nil {
			families = nil
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil
	}
	return families
}

// nameless is a series without a name before its braces, which Prometheus' parser counts to the family before it.
var nameless = regexp.MustCompile(`(?m)^[ \t]*\{`)

// sameReading leaves out what is deliberately read otherwise: names in quotes or missing, families that are not plain values.
func sameReading(text []byte, families map[string]*dto.MetricFamily) bool {
	for _, f := range families {
		if f.GetType() == dto.MetricType_HISTOGRAM || f.GetType() == dto.MetricType_SUMMARY {
			return false
		}
	}
	return !bytes.Contains(text, []byte("\"vllm:")) && !nameless.Match(text) && len(text) < maxLine
}

// oracle is the reading on top of the real parser.
func oracle(families map[string]*dto.MetricFamily) (endpoint.Gauges, bool) {
	waiting, running := values(families["vllm:num_requests_waiting"]), values(families["vllm:num_requests_running"])
	kv := values(families["vllm:kv_cache_usage_perc"])
	if len(kv) == 0 {
		kv = values(families["vllm:gpu_cache_usage_perc"])
	}
	g := endpoint.Gauges{}
	g.Waiting, g.Running = sumOf(waiting, true), sumOf(running, true)
	for _, m := range kv {
		g.KVUsage = min(max(g.KVUsage, value(m)), 1)
	}
	queries, hits := values(families["vllm:prefix_cache_queries_total"]), values(families["vllm:prefix_cache_hits_total"])
	if len(queries) == 0 {
		queries = values(families["vllm:gpu_prefix_cache_queries_total"])
	}
	if len(hits) == 0 {
		hits = values(families["vllm:gpu_prefix_cache_hits_total"])
	}
	if len(queries) > 0 && len(hits) > 0 {
		g.Counted, g.Queries, g.Hits = true, sumOf(queries, false), sumOf(hits, false)
	}
	var caches []*dto.Metric
	for _, m := range families["vllm:cache_config_info"].GetMetric() {
		if v := value(m); !math.IsNaN(v) && !math.IsInf(v, 0) {
			alignment := cmp.Or(count(m, "cache_hit_alignment_tokens"), count(m, "effective_attention_block_size"), count(m, "block_size"))
			g.Alignment = max(g.Alignment, int(alignment))
			tokens := cmp.Or(count(m, "kv_cache_size_tokens"), count(m, "block_size")*count(m, "num_gpu_blocks"))
			caches = append(caches, &dto.Metric{Label: m.GetLabel(), Gauge: &dto.Gauge{Value: &tokens}})
		}
	}
	g.Blocks = int(min(sumOf(caches, false)/16, maxCount))
	newest := math.Inf(-1)
	for _, m := range families["vllm:lora_requests_info"].GetMetric() {
		if v := value(m); v >= newest && !math.IsInf(v, 0) {
			newest = v
			l := lora{most: int(count(m, "max_lora")), running: []byte(escaper.Replace(labelOf(m, "running_lora_adapters"))), waiting: []byte(escaper.Replace(labelOf(m, "waiting_lora_adapters")))}
			g.Page = &scheduling.Page{Adapters: l.adapters()}
		}
	}
	return g, len(waiting)+len(running) > 0
}

func value(m *dto.Metric) float64 {
	return m.GetGauge().GetValue() + m.GetUntyped().GetValue() + m.GetCounter().GetValue()
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func count(m *dto.Metric, label string) float64 {
	n, err := strconv.Atoi(labelOf(m, label))
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return float64(n)
}

// values are the series of a family with usable values, in the order of the page.
func values(f *dto.MetricFamily) (series []*dto.Metric) {
	for _, m := range f.GetMetric() {
		limit := float64(maxCount)
		if strings.HasSuffix(f.GetName(), "_total") {
			limit = maxTotal
		}
		if v := value(m); v >= 0 && v <= limit {
			series = append(series, m)
		}
	}
	return series
}

// sumOf adds series by the rule of tally. withTotal means that a series without a priority contains those with one.
func sumOf(series []*dto.Metric, withTotal bool) (sum float64) {
	greatest, total := map[string]float64{}, map[string]bool{}
	var order, parts []string
	for _, m := range series {
		var labels []string
		priority := ""
		for _, l := range m.GetLabel() {
			switch {
			case l.GetName() == "rank" || strings.HasSuffix(l.GetName(), "_rank") &&
				l.GetName() != "dp_rank" && l.GetName() != "attn_dp_rank" && l.GetName() != "data_parallel_rank":
			case l.GetName() == "priority" && withTotal:
				priority = l.GetValue()
			case l.GetValue() != "":
				labels = append(labels, fmt.Sprintf("%q=%q", l.GetName(), l.GetValue()))
			}
		}
		slices.Sort(labels)
		part := strings.Join(labels, ",")
		key := part + "\n" + priority
		if _, known := greatest[key]; !known {
			order, parts = append(order, key), append(parts, part)
		}
		greatest[key] = max(greatest[key], value(m))
		total[part] = total[part] || priority == ""
	}
	for i, key := range order {
		if !total[parts[i]] || strings.HasSuffix(key, "\n") {
			sum += greatest[key]
		}
	}
	return sum
}

// stepReader reads at most n bytes at a time.
type stepReader struct {
	rest []byte
	n    int
}

func (r *stepReader) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.rest[:min(r.n, len(r.rest))])
	r.rest = r.rest[n:]
	return n, nil
}

// samplePage is a page of the size and kind that vLLM serves.
func samplePage(running, waiting int, kv float64) string {
	b := &strings.Builder{}
	for family := range 13 {
		fmt.Fprintf(b, "# HELP vllm:histogram_%d of something\n# TYPE vllm:histogram_%d histogram\n", family, family)
		for bucket := range 24 {
			fmt.Fprintf(b, "vllm:histogram_%d_bucket{engine=\"0\",le=\"%d.0\",model_name=\"base-model\"} %d.0\n", family, bucket, bucket*family)
		}
		fmt.Fprintf(b, "vllm:histogram_%d_bucket{engine=\"0\",le=\"+Inf\",model_name=\"base-model\"} 9000.0\nvllm:histogram_%d_count 9000.0\nvllm:histogram_%d_sum 1.5\n", family, family, family)
	}
	fmt.Fprintf(b, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"base-model\"} %d.0\n", running)
	fmt.Fprintf(b, "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\",model_name=\"base-model\"} %d.0\n", waiting)
	fmt.Fprintf(b, "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine=\"0\",model_name=\"base-model\"} %g\n", kv)
	fmt.Fprintf(b, "# TYPE vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc{engine=\"0\",model_name=\"base-model\"} %g\n", kv)
	return b.String()
}

func BenchmarkReadPage(b *testing.B) {
	text := []byte(samplePage(3, 1, 0.5))
	buf, v := make([]byte, maxLine), vllm(b)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for r := bytes.NewReader(nil); b.Loop(); {
		r.Reset(text)
		if _, err := v.readPage(r, buf); err != nil {
			b.Fatal(err)
		}
	}
}
