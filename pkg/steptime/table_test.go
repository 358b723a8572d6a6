package steptime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	law := Law{Table: Table{
		{MS: []float64{5}},
		{Axes: []Axis{{Of: "prompt", At: []float64{0, 100}}, {Of: "decoding", At: []float64{0, 10}}}, MS: []float64{0, 10, 20, 50}},
		{Axes: []Axis{{Of: "before", At: []float64{0, 1000}}}, MS: []float64{0, 8}},
		{Axes: []Axis{{Of: "context", At: []float64{0, 1000}}}, MS: []float64{0, 4}},
	}}
	var prefill, decode, both, beyond Step
	prefill.Prefill(500, 1)
	for range 5 {
		decode.Decode(250)
	}
	both.Prefill(0, 50)
	for range 5 {
		both.Decode(0)
	}
	for range 99 {
		beyond.Decode(9999)
	}
	assert.Equal(t, 5*ms, law.Time(Step{}))
	assert.InDelta(t, 5+0.2+4, law.Time(prefill).Seconds()*1e3, 1e-3, "one token after 500")
	assert.Equal(t, (5+5+1)*ms, law.Time(decode))
	assert.InDelta(t, 5+20+24.5/1000*8, law.Time(both).Seconds()*1e3, 1e-3, "the mean of four points, and 24.5 tokens before each")
	assert.Equal(t, (5+10+4)*ms, law.Time(beyond), "constant beyond the ends")
}

func TestTableIsValidated(t *testing.T) {
	t.Parallel()
	axis := func(at ...float64) []Axis { return []Axis{{Of: "prompt", At: at}} }
	for name, tt := range map[string]struct {
		give Table
		want string
	}{
		"another axis":    {Table{{Axes: []Axis{{Of: "tokens", At: []float64{0}}}, MS: []float64{1}}}, `table 0: axis "tokens" is none of`},
		"it falls":        {Table{{Axes: axis(0, 2, 1), MS: []float64{1, 2, 3}}}, "must ascend"},
		"equal points":    {Table{{Axes: axis(0, 1, 1), MS: []float64{1, 2, 3}}}, "must ascend"},
		"not from 0":      {Table{{Axes: axis(1, 2), MS: []float64{1, 2}}}, "must ascend from 0"},
		"too few times":   {Table{{Axes: axis(0, 2), MS: []float64{1}}}, "1 times"},
		"negative":        {Table{{Axes: axis(0, 2), MS: []float64{-1, 2}}}, "negative"},
		"no time":         {Table{{MS: []float64{0}}}, "must take time"},
		"nothing at all":  {Table{}, "base time of a step"},
		"a part, no axes": {Table{{MS: []float64{1}}}, ""},
	} {
		err := Law{Table: tt.give}.Validate()
		if tt.want == "" {
			require.NoError(t, err, name)
			continue
		}
		assert.ErrorContains(t, err, tt.want, name)
	}
}
