package cri

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	// Fields 3 to 24 of /proc/PID/stat: state, ppid, ... utime (14) 120, stime (15) 30, ... rss (24) 2000 pages.
	const fields = "S 1 1 1 0 -1 4194560 1 0 0 0 120 30 0 0 20 0 9 0 100 1000000 2000 18446744073709551615"
	page := uint64(os.Getpagesize())
	tests := []struct {
		name, give string
		want       usage
	}{
		{name: "an ordinary command", give: "7 (server) " + fields, want: usage{cpuNanoseconds: 1_500_000_000, rssBytes: 2000 * page}},
		{name: "a command with spaces and parentheses", give: "7 (a) b (c)) " + fields, want: usage{cpuNanoseconds: 1_500_000_000, rssBytes: 2000 * page}},
		{name: "too short", give: "7 (server) S 1 1"},
		{name: "nothing", give: ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, parseStat([]byte(tt.give)))
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("7 (server) S 1 1")
	f.Add(strings.Repeat(")", 30) + strings.Repeat(" 1", 30))
	f.Fuzz(func(_ *testing.T, stat string) { parseStat([]byte(stat)) }) // must not panic
}
