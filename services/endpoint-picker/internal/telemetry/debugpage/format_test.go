package debugpage

import (
	"testing"

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
		{name: "negative", give: formatCount(-999), want: "-999"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, tt.give)
		})
	}
}
