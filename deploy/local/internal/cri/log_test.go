package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// entries splits a log into its lines' stream, tag and text, and checks the times.
func entries(t *testing.T, file string) []string {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var list []string
	for line := range strings.Lines(string(raw)) {
		stamp, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		require.True(t, ok, line)
		_, err := time.Parse(time.RFC3339Nano, stamp)
		require.NoError(t, err)
		list = append(list, rest)
	}
	return list
}

func TestLogFile_Copy(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLogLine)
	tests := []struct {
		name, give string
		want       []string
	}{
		{name: "whole lines", give: "one\ntwo\n", want: []string{"stdout F one", "stdout F two"}},
		{name: "the last line lacks its end", give: "one\ntwo", want: []string{"stdout F one", "stdout F two"}},
		{name: "empty lines are lines", give: "\n\n", want: []string{"stdout F ", "stdout F "}},
		{name: "nothing", give: ""},
		{name: "a long line comes in parts", give: long + "tail\nnext\n", want: []string{"stdout P " + long, "stdout F tail", "stdout F next"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pod", "0.log")
			l, err := openLog(file)
			require.NoError(t, err)
			l.copy("stdout", strings.NewReader(tt.give))
			l.close()
			assert.Equal(t, tt.want, entries(t, file))
		})
	}
}

func TestLogFile_ReopenFollowsARotation(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "0.log")
	l, err := openLog(file)
	require.NoError(t, err)
	l.write("stdout", tagFull, []byte("old"))
	require.NoError(t, os.Rename(file, file+".rotated"))
	require.NoError(t, l.reopen())
	l.write("stderr", tagFull, []byte("new"))
	l.close()
	assert.Equal(t, []string{"stdout F old"}, entries(t, file+".rotated"))
	assert.Equal(t, []string{"stderr F new"}, entries(t, file))
}
