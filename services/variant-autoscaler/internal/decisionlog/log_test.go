package decisionlog

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func record(second int64) *decision.Record {
	return &decision.Record{
		Snapshot: &snapshot.Snapshot{Time: time.Unix(second, 0).UTC(), Settings: snapshot.Settings{Split: "observed"}},
		Decision: &decision.Decision{Cost: second},
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "decisions.jsonl")
	for second := range int64(2) { // a restart appends
		l, err := Open(name, nil)
		require.NoError(t, err)
		require.NoError(t, l.Write(record(second)))
		require.NoError(t, l.Close())
	}
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, 2, bytes.Count(text, []byte("\n")))
	s, err := Read(bytes.NewReader(text))
	require.NoError(t, err)
	assert.Equal(t, record(1).Snapshot, s, "the last one")
}

// TestRotation: a log takes at most twice the size of a file, however many records it gets.
func TestRotation(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	name := filepath.Join(folder, "decisions.jsonl")
	l, err := Open(name, nil)
	require.NoError(t, err)
	l.most = 1000
	for second := range int64(50) {
		require.NoError(t, l.Write(record(second)))
	}
	require.NoError(t, l.Close())
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, 2)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		assert.LessOrEqual(t, info.Size(), int64(1000))
		assert.Positive(t, info.Size())
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l, err := Open("-", &out)
	require.NoError(t, err)
	require.NoError(t, l.Write(record(1)))
	require.NoError(t, l.Close())
	assert.Contains(t, out.String(), `"cost":1`)

	l, err = Open("", nil)
	require.NoError(t, err)
	require.NoError(t, l.Write(record(1)))

	_, err = Open(t.TempDir(), nil)
	require.ErrorContains(t, err, "open decision log")
}

func TestRead(t *testing.T) {
	t.Parallel()
	s, err := Read(strings.NewReader("{\n\n" + `{"settings":{"split":"equal"},"groups":[{"model":"m"}]}` + "\n\n"))
	require.NoError(t, err)
	assert.Equal(t, "m", s.Groups[0].Model, "a snapshot, and empty lines")
	for text, want := range map[string]string{
		"":                  "the input is empty",
		"x":                 "the last line is not JSON",
		`{"a":1}`:           "neither a record nor a snapshot",
		`{"groups":"none"}`: "read snapshot",
	} {
		_, err := Read(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"snapshot":{"settings":{"split":"equal"}}}`))
	f.Add([]byte(`{"settings":{"split":"observed","percentile":90},"groups":[{"model":"m","priority":1,"variants":[{"name":"v"}]}]}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		s, err := Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		_, _ = decision.Decide(s) // hand-written snapshots have any numbers
	})
}
