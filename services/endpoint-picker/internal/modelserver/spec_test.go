package modelserver

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseSpec(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give string
		want spec
	}{
		{name: "name alone", give: " vllm:num_requests_waiting ", want: spec{name: "vllm:num_requests_waiting"}},
		{name: "no labels", give: "up{}", want: spec{name: "up"}},
		{name: "bare value", give: "m{request_type=waiting}", want: spec{name: "m", labels: []label{{"request_type", "waiting"}}}},
		{name: "quoted values", give: `m {a="x, y}", b = 'z"',}`, want: spec{name: "m", labels: []label{{"a", "x, y}"}, {"b", `z\"`}}}},
		{name: "escapes", give: `m{a="q\"b\\n\n"}`, want: spec{name: "m", labels: []label{{"a", `q\"b\\n\n`}}}},
		{name: "empty value", give: `m{a="",b=}`, want: spec{name: "m", labels: []label{{"a", ""}, {"b", ""}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseSpec(tt.give)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParseSpecRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give string
		want error
	}{
		{name: "nothing", give: "", want: errNoName},
		{name: "labels alone", give: "{a=b}", want: errNoName},
		{name: "a digit first", give: "1m", want: errNoName},
		{name: "an expression", give: "sum(m)", want: errNoName},
		{name: "open braces", give: "m{a=b", want: errNoBrace},
		{name: "something behind", give: "m{a=b}[5m]", want: errNoBrace},
		{name: "another way to match", give: "m{a=~b}", want: errNoEquals},
		{name: "unequal", give: `m{a!="b"}`, want: errNoEquals},
		{name: "no value", give: "m{a}", want: errNoEquals},
		{name: "open quote", give: `m{a="b}`, want: errNoEquals},
		{name: "two values", give: `m{a="b" c="d"}`, want: errNoEquals},
		{name: "label with a colon", give: "m{a:b=c}", want: errNoEquals},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseSpec(tt.give)
			require.ErrorIs(t, err, tt.want)
			assert.ErrorContains(t, err, strconv.Quote(tt.give))
		})
	}
}
