package endpoint

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
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
			index := prefix.NewIndex(1 << 20)
			f := NewFactory(predict.NewLearner(), index, &Traffic{})
			d := Description{Identity: Identity{Address: netip.MustParseAddrPort("10.0.0.1:8000")}}
			capacity := func(e *Endpoint) int {
				_, blocks := index.Holds(e.Cache())
				return blocks
			}
			scrape := func(e *Endpoint) { e.Record(e.BeginScrape(noon), Gauges{Blocks: tt.page}) }

			before := f.New(d, noon)
			assert.Equal(t, usualBlocks, capacity(before))
			scrape(before)
			f.SetCacheSize(tt.give, []*Endpoint{before})
			assert.Equal(t, tt.want, capacity(before), "an existing endpoint")
			after := f.New(d, noon)
			assert.Equal(t, tt.give.Blocks, capacity(after), "before its first page")
			scrape(after)
			assert.Equal(t, tt.want, capacity(after))
			after.Record(after.BeginScrape(noon), Gauges{})
			assert.Equal(t, tt.want, capacity(after), "a page without the size changes nothing")

			f.SetCacheSize(CacheSize{Blocks: 7}, []*Endpoint{before, after})
			assert.Equal(t, []int{7, 7}, []int{capacity(before), capacity(after)})
			f.SetCacheSize(CacheSize{Blocks: 7, FromPage: true}, []*Endpoint{before, after})
			want := max(tt.page, 7)
			assert.Equal(t, []int{want, want}, []int{capacity(before), capacity(after)}, "the size on the page is remembered")
		})
	}
}
