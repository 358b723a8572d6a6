package decision

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func TestCalm(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(g *snapshot.Group)
		want   int64
	}{
		{"the load with headroom", func(*snapshot.Group) {}, 733_334},
		{"enough samples", func(g *snapshot.Group) { g.Variants[0].Measured.Samples = 3 }, 0},
		{"nobody serves", func(g *snapshot.Group) { g.Variants[0].Ready = 0 }, 0},
		{"requests wait in the servers", func(g *snapshot.Group) { g.Load.Waiting = 1 }, 0},
		{"requests wait in the picker", func(g *snapshot.Group) { g.Load.Queued = 1 }, 0},
		{"first tokens are near their target", func(g *snapshot.Group) { g.Load.TTFT = 1501 }, 0},
		{"further tokens are near their target", func(g *snapshot.Group) { g.Load.ITL = 51 }, 0},
		{"no times are known", func(g *snapshot.Group) { g.Load.TTFT, g.Load.ITL = 0, 0 }, 0},
		{"another variant serves too", func(g *snapshot.Group) { g.Variants = append(g.Variants, snapshot.Variant{Name: "b", Ready: 1}) }, 0},
		{"another variant starts", func(g *snapshot.Group) { g.Variants = append(g.Variants, snapshot.Variant{Name: "b", Now: 1}) }, 733_334},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := &snapshot.Group{
				Targets:  snapshot.Targets{TTFT: 3000, ITL: 100},
				Load:     snapshot.Load{Rate: 2e6, TTFT: 250, ITL: 12},
				Variants: []snapshot.Variant{{Name: "a", Ready: 3, Measured: &snapshot.Measured{Samples: 2}}},
			}
			tt.change(g)
			assert.Equal(t, tt.want, observedMinimum(&g.Variants[0], g, g.Targets, 10))
		})
	}
}
