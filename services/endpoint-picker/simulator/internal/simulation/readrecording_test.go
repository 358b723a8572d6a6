package simulation

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
)

const mooncake = `{"timestamp": 27482, "input_length": 1300, "output_length": 52, "hash_ids": [46, 47, 48]}
{"timestamp": 27482.5, "input_length": 512, "output_length": 1, "hash_ids": [46]}
`

func TestReadMooncake(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write([]byte(mooncake))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for name, text := range map[string]string{"plain": mooncake, "compressed": zipped.String(), "with blank lines": "\n" + mooncake + "\r\n \n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ReadRecording(strings.NewReader(text))
			require.NoError(t, err)
			first, second := 27482.0, 27482.5
			assert.Equal(t, []recorder.RecordedRequest{
				{Timestamp: &first, Input: 1300, Output: 52, Hashes: []uint64{46, 47, 48}},
				{Timestamp: &second, Input: 512, Output: 1, Hashes: []uint64{46}},
			}, got)
		})
	}
}

func TestReadSortsByArrival(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i, at := range []int{30, 10, 20, 10} {
		fmt.Fprintf(&text, `{"timestamp": %d, "input_length": 1, "output_length": %d, "hash_ids": [1]}`+"\n", at, i+1)
	}
	got, err := ReadRecording(strings.NewReader(text.String()))
	require.NoError(t, err)
	var order []int
	for _, r := range got {
		order = append(order, r.Output)
	}
	assert.Equal(t, []int{2, 4, 3, 1}, order, "requests of the same time stay in the order of the file")
}

func TestWrittenLinesAreRead(t *testing.T) {
	t.Parallel()
	at, first, took, endpoint, cached, streaming := 12.0, 0.5, 99.0, 0, 0, false
	want := []recorder.RecordedRequest{{
		Timestamp: &at, Input: 513, Output: 7, Hashes: []uint64{1<<53 - 1, 0},
		Extension: recorder.Extension{
			Pool: "ns/pool", Model: 3, Endpoint: &endpoint, Endpoints: 8, Streaming: &streaming, Status: 200, TTFT: &first, Duration: &took,
			Prompt: 500, Cached: &cached, Matched: 16,
		},
	}}
	line, err := json.Marshal(&want[0])
	require.NoError(t, err)
	got, err := ReadRecording(bytes.NewReader(line))
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestReadNamesTheLine(t *testing.T) {
	t.Parallel()
	const good = `{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [1]}`
	with := func(old, replacement string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, replacement, 1)
	}
	tests := []struct {
		name string
		give string // the second line
		want string
	}{
		{name: "cut line", give: good[:40], want: "line 2 of the recording: parse JSON: unexpected EOF"},
		{name: "no JSON", give: "timestamp,input", want: "line 2 of the recording: parse JSON: invalid character"},
		{name: "two objects", give: good + good, want: "line 2 of the recording: it has more than one JSON object"},
		{name: "no time", give: `{"input_length": 1, "output_length": 1, "hash_ids": [1]}`, want: "line 2 of the recording: timestamp is missing"},
		{name: "negative time", give: with(`: 1`, `: -1`), want: "line 2 of the recording: timestamp -1 is out of range"},
		{name: "time in nanoseconds", give: with(`: 1`, `: 1e18`), want: "timestamp 1e+18 is out of range: it must be in milliseconds"},
		{name: "time without a value", give: with(`: 1`, `: 1e999`), want: "parse JSON: json: cannot unmarshal number 1e999"},
		{name: "no prompt", give: with(`"input_length": 1`, `"input_length": 0`), want: "must be at least 1"},
		{name: "negative answer", give: with(`"output_length": 1`, `"output_length": -1`), want: "must be at least 1"},
		{name: "endless answer", give: with(`"output_length": 1`, `"output_length": 1048577`), want: "must be at most 1048576"},
		{name: "more than a number", give: with(`"output_length": 1`, `"output_length": 1e30`), want: "parse JSON: "},
		{name: "few hashes", give: with(`"input_length": 1`, `"input_length": 513`), want: "hash_ids has 1 entries and input_length is 513: it must have one for each 512 tokens"},
		{name: "many hashes", give: with(`[1]`, `[1,2]`), want: "hash_ids has 2 entries and input_length is 1"},
		{name: "negative hash", give: with(`[1]`, `[-1]`), want: "parse JSON: "},
		{name: "endpoint", give: with(`}`, `, "endpoint": -1}`), want: "endpoint or endpoints is out of range"},
		{name: "endpoints", give: with(`}`, `, "endpoints": 100000}`), want: "endpoint or endpoints is out of range"},
		{name: "first token", give: with(`}`, `, "ttft_ms": -1}`), want: "ttft_ms or duration_ms is out of range"},
		{name: "cached tokens", give: with(`}`, `, "cached_tokens": 9999999}`), want: "must be from 0 to 1048576"},
		{name: "long line", give: with(`[1]`, `[1`+strings.Repeat(" ", maxLine)+`]`), want: "line 2 of the recording: it is longer than 131072 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := ReadRecording(strings.NewReader(good + "\n" + tt.give + "\n"))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestReadReportsBrokenCompression(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write([]byte(strings.Repeat(mooncake, 1000)))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = ReadRecording(bytes.NewReader(zipped.Bytes()[:zipped.Len()/2]))
	require.ErrorContains(t, err, "unexpected EOF")
	_, err = ReadRecording(bytes.NewReader(gzipMagic))
	require.ErrorContains(t, err, "read recording: ")
}

// A small compressed file must not become any amount of memory.
func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	const most = `{"timestamp": 1, "input_length": 1, "output_length": 1048576, "hash_ids": [1]}` + "\n"
	_, err := ReadRecording(strings.NewReader(strings.Repeat(most, maxTotal/recorder.MaxTokens+1)))
	require.ErrorContains(t, err, "the requests have more than 4294967296 tokens in all: split the file")
	_, err = ReadRecording(strings.NewReader(strings.Repeat("\n", maxRequests+1)))
	require.ErrorContains(t, err, "it has more than 2097152 lines: split the file")
}

// FuzzRead checks that accepted requests are within all limits, and the same after they are written and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(mooncake))
	f.Add([]byte(`{"timestamp":1,"input_length":1,"output_length":1,"hash_ids":[1],"endpoint":0,"ttft_ms":1e3,"streaming":false}`))
	f.Add(append(bytes.Clone(gzipMagic), 8, 0))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ReadRecording(bytes.NewReader(text))
		if err != nil {
			return
		}
		var again []byte
		for i := range got {
			r := &got[i]
			assert.LessOrEqual(t, max(r.Input, r.Output), recorder.MaxTokens)
			assert.Positive(t, min(r.Input, r.Output))
			assert.Len(t, r.Hashes, request.PrefixCount(r.Input))
			line, err := json.Marshal(r)
			require.NoError(t, err)
			again = append(append(again, line...), '\n')
		}
		same, err := ReadRecording(bytes.NewReader(again))
		require.NoError(t, err)
		assert.Equal(t, got, same)
	})
}
