package pools

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/pool"
)

var errCold = errors.New("cold")

type fakeReadyPool struct{ err error }

func (p *fakeReadyPool) CheckReady() error { return p.err }

func TestStartingPools(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(s *startingPools, second *fakeReadyPool)
		want   error
	}{
		{name: "a cold pool", change: func(*startingPools, *fakeReadyPool) {}, want: errCold},
		{name: "it gets warm", change: func(_ *startingPools, p *fakeReadyPool) { p.err = nil }},
		{name: "it is missing", change: func(_ *startingPools, p *fakeReadyPool) { p.err = fmt.Errorf("pool: %w", pool.ErrNoPool) }},
		{name: "it is not served anymore", change: func(s *startingPools, _ *fakeReadyPool) { s.removePool("second") }},
		{name: "just within the limit", change: func(*startingPools, *fakeReadyPool) { time.Sleep(startLimit - 1) }, want: errCold},
		{name: "it takes too long", change: func(*startingPools, *fakeReadyPool) { time.Sleep(startLimit) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, first, second := &startingPools{}, &fakeReadyPool{}, &fakeReadyPool{err: errCold}
				require.NoError(t, s.CheckReady(), "nobody waits for no pool")
				s.addPool("first", first.CheckReady)
				s.addPool("second", second.CheckReady)
				require.ErrorIs(t, s.CheckReady(), errCold)
				tt.change(s, second)
				require.ErrorIs(t, s.CheckReady(), tt.want)
				if tt.want == nil {
					first.err, second.err = errCold, errCold
					assert.NoError(t, s.CheckReady(), "they were ready once")
				}
			})
		})
	}
}
