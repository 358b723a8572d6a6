package modelserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// ranks returns a series for each rank from 0 on. The text has the verb %d for the rank.
func ranks(n int, series string) string {
	b := &strings.Builder{}
	for rank := range n {
		fmt.Fprintf(b, series+"\n", rank)
	}
	return b.String()
}

func TestReadPageCollectsSeriesByTheirLabels(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give string // lines without "sglang:"
		want endpoint.Gauges
	}{
		{
			name: "the tensor ranks of one scheduler, as with --enable-metrics-for-all-schedulers",
			give: ranks(8, `num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="%d"} 3`) +
				ranks(8, `num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="%d"} 1`) +
				ranks(8, `token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="%d"} 0.25`) +
				ranks(8, `max_total_num_tokens{engine_type="unified",model_name="m",pp_rank="0",tp_rank="%d"} 100000`),
			want: endpoint.Gauges{Running: 3, Waiting: 1, KVUsage: 0.25, Blocks: 6250},
		},
		{
			name: "all ranks report constants, though one reports requests",
			give: `num_running_reqs{pp_rank="0",tp_rank="0"} 2` + "\n" + ranks(4, `page_size{tp_rank="%d"} 64`) + ranks(4, `num_pages{tp_rank="%d"} 100`),
			want: endpoint.Gauges{Running: 2, Blocks: 400, Alignment: 64},
		},
		{
			name: "a rank that reports later than others",
			give: `num_running_reqs{tp_rank="0"} 3` + "\n" + `num_running_reqs{tp_rank="1"} 4` + "\n" + `num_running_reqs{tp_rank="2"} 2`,
			want: endpoint.Gauges{Running: 4},
		},
		{
			name: "the ranks of experts, stages and contexts",
			give: ranks(4, `num_running_reqs{moe_ep_rank="%d",pp_rank="0",tp_rank="0"} 5`) + ranks(4, `num_running_reqs{moe_ep_rank="0",pp_rank="%d",tp_rank="1"} 5`) +
				ranks(4, `num_queue_reqs{attn_cp_rank="%d",moe_dp_rank="1",node_rank="3",rank="9"} 2`),
			want: endpoint.Gauges{Running: 5, Waiting: 2},
		},
		{
			name: "data parallel ranks have queues of their own",
			give: ranks(2, `num_running_reqs{dp_rank="%d",tp_rank="0"} 3`) + ranks(2, `num_queue_reqs{attn_dp_rank="%d"} 2`) +
				ranks(2, `hicache_host_total_tokens{data_parallel_rank="%d"} 160`) + ranks(2, `max_total_num_tokens{dp_rank="%d"} 1600`),
			want: endpoint.Gauges{Running: 6, Waiting: 4, Blocks: 220},
		},
		{
			name: "data parallel attention: the tensor ranks are divided over the data parallel ranks",
			give: ranks(4, `num_running_reqs{dp_rank="0",moe_ep_rank="%[1]d",tp_rank="%[1]d"} 3`) + ranks(4, `num_running_reqs{dp_rank="1",moe_ep_rank="%[1]d",tp_rank="%[1]d"} 1`),
			want: endpoint.Gauges{Running: 4},
		},
		{
			name: "the series without a priority is the total",
			give: `num_running_reqs{priority="",tp_rank="0"} 4` + "\n" + `num_running_reqs{priority="0",tp_rank="0"} 1` + "\n" + `num_running_reqs{priority="10",tp_rank="0"} 3` + "\n" +
				`num_queue_reqs{priority="-1",tp_rank="0"} 2` + "\n" + `num_queue_reqs{priority="",tp_rank="0"} 2`,
			want: endpoint.Gauges{Running: 4, Waiting: 2},
		},
		{
			name: "a total that is zero",
			give: `num_running_reqs{priority=""} 0` + "\n" + `num_running_reqs{priority="0"} 1`,
			want: endpoint.Gauges{},
		},
		{
			name: "priorities without a total",
			give: `num_running_reqs{priority="0"} 1` + "\n" + `num_running_reqs{priority="None"} 3`,
			want: endpoint.Gauges{Running: 4},
		},
		{
			name: "the total of one data parallel rank says nothing of another",
			give: `num_running_reqs{dp_rank="0",priority="1"} 5` + "\n" + `num_running_reqs{dp_rank="0"} 6` + "\n" +
				`num_running_reqs{dp_rank="1",priority="1"} 1` + "\n" + `num_running_reqs{dp_rank="1",priority="2"} 2`,
			want: endpoint.Gauges{Running: 9},
		},
		{
			name: "data parallel ranks, tensor ranks and priorities",
			give: ranks(2, `num_running_reqs{dp_rank="0",priority="",tp_rank="%d"} 7`) + ranks(2, `num_running_reqs{dp_rank="1",priority="",tp_rank="%d"} 1`) +
				ranks(2, `num_running_reqs{dp_rank="0",priority="0",tp_rank="%d"} 4`) + ranks(2, `num_running_reqs{dp_rank="0",priority="10",tp_rank="%d"} 3`) +
				ranks(2, `num_running_reqs{dp_rank="1",priority="10",tp_rank="%d"} 1`),
			want: endpoint.Gauges{Running: 8},
		},
		{
			name: "labels in another order, quoted names, and blanks",
			give: `num_running_reqs{dp_rank="0",model_name="m",tp_rank="0"} 3` + "\n" + `num_running_reqs{ "tp_rank" = "1", "model_name"="m",  "dp_rank"="0"} 3`,
			want: endpoint.Gauges{Running: 3},
		},
		{
			name: "other labels are different parts, and a similar name is no rank",
			give: `num_running_reqs{model_name="a"} 1` + "\n" + `num_running_reqs{model_name="b"} 2` + "\n" + `num_queue_reqs{crank="1"} 1` + "\n" + `num_queue_reqs{crank="2"} 2`,
			want: endpoint.Gauges{Running: 3, Waiting: 3},
		},
		{
			name: "counters: requests without a priority are a part, and sources add up",
			give: "num_running_reqs 1\n" + `prompt_tokens_total{priority=""} 10` + "\n" + `prompt_tokens_total{priority="1"} 30` + "\n" +
				`cached_tokens_total{cache_source="device",priority="1"} 20` + "\n" + `cached_tokens_total{cache_source="host",priority="1"} 5`,
			want: endpoint.Gauges{Running: 1, Queries: 40, Hits: 25, Counted: true},
		},
	}
	engines := map[string]*reading{"sglang:": reader(t, EngineSGLang), "mine:": declared(t)}
	for _, tt := range tests {
		for prefix, engine := range engines {
			t.Run(prefix+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				page := prefix + strings.ReplaceAll(strings.TrimSpace(tt.give), "\n", "\n"+prefix)
				r := newReading(engine.matcher)
				for range 2 { // the second page finds no trace of the first
					got, err := r.readPage(strings.NewReader(page), make([]byte, maxLine))
					require.NoError(t, err)
					assert.Equal(t, tt.want, got)
				}
			})
		}
	}
}

// declared returns a reading for an engine as users declare it, with the metrics of SGLang under other names.
func declared(t *testing.T) *reading {
	t.Helper()
	e := Engine{
		Name: "mine", Waiting: Metrics{"mine:num_queue_reqs"}, Running: Metrics{"mine:num_running_reqs"}, KVUsage: Metrics{"mine:token_usage"},
		BlockSize: "mine:page_size", Blocks: "mine:num_pages", Tokens: "mine:max_total_num_tokens", HostTokens: "mine:hicache_host_total_tokens",
		Queries: Metrics{"mine:prompt_tokens_total"}, Hits: Metrics{"mine:cached_tokens_total"},
	}
	m, err := newMatcher(&e)
	require.NoError(t, err)
	return newReading(m)
}

// The size of a cache in labels follows the same rule.
func TestReadPageCollectsSizesInLabels(t *testing.T) {
	t.Parallel()
	m, err := newMatcher(&Engine{
		Name: "mine", Running: Metrics{"mine:running"}, CacheInfo: "mine:cache", BlockSizeLabel: "page_size", BlocksLabel: "num_pages",
	})
	require.NoError(t, err)
	got, err := newReading(m).readPage(strings.NewReader("mine:running 1\n"+
		ranks(8, `mine:cache{num_pages="10",page_size="32",tp_rank="%d"} 1`)+ranks(2, `mine:cache{dp_rank="%d",num_pages="10",page_size="32"} 1`)), make([]byte, maxLine))
	require.NoError(t, err)
	assert.Equal(t, 3*10*32/16, got.Blocks, "a scheduler without a data parallel rank, and two with one")
}

// Upstream reads the labels of vLLM if a configuration names none, or only one of them.
func TestReadPageReadsTheLabelsOfVLLMIfTheEngineHasNone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give Engine
		page string
	}{
		{name: "no labels", page: `mine:cache{block_size="32",num_gpu_blocks="10",num_pages="7",page_size="3"} 1`},
		{name: "the size", give: Engine{BlockSizeLabel: "page_size"}, page: `mine:cache{block_size="3",num_gpu_blocks="10",page_size="32"} 1`},
		{name: "the number", give: Engine{BlocksLabel: "num_pages"}, page: `mine:cache{block_size="32",num_gpu_blocks="7",num_pages="10"} 1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := tt.give
			e.Name, e.Running, e.CacheInfo = "mine", Metrics{"mine:running"}, "mine:cache"
			s := DefaultSettings()
			s.Extractor.Engines = []Engine{e}
			require.NoError(t, s.Validate())
			m, err := newMatcher(&e)
			require.NoError(t, err)
			got, err := newReading(m).readPage(strings.NewReader("mine:running 1\n"+tt.page+"\n"), make([]byte, maxLine))
			require.NoError(t, err)
			assert.Equal(t, 10*32/16, got.Blocks)
		})
	}
}

func TestReadPageLimitsSeries(t *testing.T) {
	t.Parallel()
	priorities := ranks(2*maxSeries, `sglang:num_running_reqs{priority="%d"} 1`)
	_, err := reader(t, EngineSGLang).readPage(strings.NewReader(priorities), make([]byte, maxLine))
	require.ErrorIs(t, err, errManySeries)

	// SGLang never forgets a priority, and clients choose them. It lists the total first.
	got, err := reader(t, EngineSGLang).readPage(strings.NewReader(`sglang:num_running_reqs{priority=""} 7`+"\n"+priorities), make([]byte,
		maxLine))
	require.NoError(t, err)
	assert.Equal(t, endpoint.Gauges{Running: 7}, got)
}
