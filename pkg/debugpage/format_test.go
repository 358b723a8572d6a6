package debugpage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestFormats(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "no time", give: formatSeconds(0), want: "0"},
		{name: "microseconds", give: formatSeconds(0.0000251), want: "25.1 µs"},
		{name: "milliseconds", give: formatSeconds(0.0123), want: "12.3 ms"},
		{name: "seconds", give: formatSeconds(62.5), want: "62.50 s"},
		{name: "part", give: formatPercent(0.256), want: "25.6 %"},
		{name: "bytes", give: byteSize(1023), want: "1023 B"},
		{name: "kibibytes", give: byteSize(1536), want: "1.5 KiB"},
		{name: "mebibytes", give: byteSize(20 << 20), want: "20.0 MiB"},
		{name: "three digits", give: formatCount(999), want: "999"},
		{name: "four digits", give: formatCount(int64(1000)), want: "1,000"},
		{name: "seven digits", give: formatCount(1234567.0), want: "1,234,567"},
		{name: "negative count", give: formatCount(-999), want: "-999"},
		{name: "none", give: formatNumber(0), want: "0"},
		{name: "small", give: formatNumber(0.123456), want: "0.1235"},
		{name: "large", give: formatNumber(123456.7), want: "123457"},
		{name: "absurd", give: formatNumber(1e30), want: "1e+30"},
		{name: "negative", give: formatNumber(-1234.5), want: "-1234"},
		{name: "all", give: formatShare(1), want: "100 %"},
		{name: "nearly all", give: formatShare(0.999999), want: "99.9 %"},
		{name: "a part", give: formatShare(0.25), want: "25 %"},
		{name: "age", give: formatAge(72.4), want: "1m12s"},
		{name: "minutes", give: formatSpan(10 * time.Minute), want: "10 min"},
		{name: "hours", give: formatSpan(125 * time.Minute), want: "2 h 5 min"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, tt.give)
		})
	}
}
