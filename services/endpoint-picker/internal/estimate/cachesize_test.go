package estimate

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

func TestCacheSize(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give CacheSize
		page int
		want int
	}{
		{name: "no page yet", give: CacheSize{Blocks: 100, FromPage: true}, want: 100},
		{name: "page", give: CacheSize{Blocks: 100, FromPage: true}, page: 500, want: 500},
		{name: "page that does not count", give: CacheSize{Blocks: 100}, page: 500, want: 100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newTestEstimator(1 << 20)
			d := endpoint.Description{Identity: endpoint.Identity{Address: netip.MustParseAddrPort("10.0.0.1:8000")}}
			capacity := func(e *endpoint.Endpoint) int {
				_, blocks := x.CacheSize(e)
				return blocks
			}
			scrape := func(e *endpoint.Endpoint) { e.RecordSample(e.StartScrape(noon), endpoint.Gauges{Blocks: tt.page}) }

			before := x.NewEndpoint(d, noon)
			assert.Equal(t, usualBlocks, capacity(before))
			scrape(before)
			x.SetCacheSize(tt.give, []*endpoint.Endpoint{before})
			assert.Equal(t, tt.want, capacity(before), "an existing endpoint")
			after := x.NewEndpoint(d, noon)
			assert.Equal(t, tt.give.Blocks, capacity(after), "before its first page")
			scrape(after)
			assert.Equal(t, tt.want, capacity(after))
			after.RecordSample(after.StartScrape(noon), endpoint.Gauges{})
			assert.Equal(t, tt.want, capacity(after), "a page without the size changes nothing")

			x.SetCacheSize(CacheSize{Blocks: 7}, []*endpoint.Endpoint{before, after})
			assert.Equal(t, []int{7, 7}, []int{capacity(before), capacity(after)})
			x.SetCacheSize(CacheSize{Blocks: 7, FromPage: true}, []*endpoint.Endpoint{before, after})
			want := max(tt.page, 7)
			assert.Equal(t, []int{want, want}, []int{capacity(before), capacity(after)}, "the size on the page is remembered")
		})
	}
}
