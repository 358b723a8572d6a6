package echo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give string
		want params
	}{
		{name: "empty query", want: params{status: 200}},
		{name: "everything", give: "status=503&hold=2s&delay=1s&events=3&interval=20ms&pause=1m10s", want: params{status: 503, hold: 2 * time.Second, delay: time.Second, events: 3, interval: 20 * time.Millisecond, pause: 70 * time.Second}},
		{name: "the first of two values", give: "status=201&status=202", want: params{status: 201}},
		{name: "other parameters are ignored", give: "a=1;b=2&%zz&status=204&x", want: params{status: 204}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(tt.give)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParse_RefusesNonsense(t *testing.T) {
	t.Parallel()
	tests := []struct{ give, want string }{
		{give: "status=100", want: `status="100" is invalid: give a number from 200 to 599`},
		{give: "events=many", want: `events="many" is invalid: give a number`},
		{give: "events=-1", want: `events="-1" is invalid: give a number`},
		{give: "delay=5", want: `delay="5" is invalid: give a duration`},
		{give: "interval=-1s", want: `interval="-1s" is invalid: give a duration`},
		{give: "pause=2h", want: `pause="2h" is invalid: give a duration from 0s to 1h0m0s`},
	}
	for _, tt := range tests {
		t.Run(tt.give, func(t *testing.T) {
			t.Parallel()
			_, err := parse(tt.give)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func TestBefore(t *testing.T) {
	t.Parallel()
	p := params{events: 3, interval: time.Second, pause: time.Minute}
	assert.Equal(t, []time.Duration{0, time.Second, time.Minute + time.Second}, []time.Duration{p.before(1), p.before(2), p.before(3)})
	p.events = 1
	assert.Equal(t, time.Minute, p.before(1), "the only event is also the last")
}

func FuzzParse(f *testing.F) {
	f.Add("status=503&hold=2s&delay=1s&events=3&interval=20ms&pause=70s")
	f.Add("a=1;b&%zz=&&=")
	f.Fuzz(func(t *testing.T, query string) {
		p, err := parse(query)
		if err != nil {
			return
		}
		assert.True(t, p.status >= 200 && p.status <= 599)
		assert.True(t, p.events >= 0 && p.events <= maxEvents)
		for _, d := range []time.Duration{p.hold, p.delay, p.interval, p.pause} {
			assert.True(t, d >= 0 && d <= maxWait)
		}
	})
}
