package replay

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requestLine is a request for one of sixty prompts, with more fields.
func requestLine(i int, more string) string {
	at := i * 40
	return fmt.Sprintf(`{"timestamp": %d, "input_length": 2100, "output_length": 20, "hash_ids": [%d, 2, 3, 4, %d]%s}`+"\n", at, i%60, 1000+i, more)
}

func recordingOf(t *testing.T, lines int, more func(i int) string) string {
	t.Helper()
	var text strings.Builder
	for i := range lines {
		text.WriteString(requestLine(i, more(i)))
	}
	return writeFile(t, text.String())
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func plain(int) string { return "" }

// rowsOf returns the cells of the table by the name of the row.
func rowsOf(out string) map[string][]string {
	rows := map[string][]string{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(strings.Replace(line, " to ", "-", 1))
		if len(fields) >= 11 && fields[0] != "first" && fields[0] != "recording:" && fields[0] != "played" {
			rows[strings.Join(fields[:len(fields)-10], " ")] = fields[len(fields)-10:]
		}
	}
	return rows
}

func run(t *testing.T, o Options) (out, log string) {
	t.Helper()
	require.NoError(t, o.Validate())
	var config, remarks bytes.Buffer
	require.NoError(t, Run(t.Context(), o, &config, &remarks))
	return config.String(), remarks.String()
}

func TestReplayCompares(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Servers = 3
	o.Recording = recordingOf(t, 300, plain)
	o.Config = writeFile(t, "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: random-picker}]\nschedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]\n")
	out, log := run(t, o)
	assert.Contains(t, out, "recording: 300 requests, 25.1/s, with 2100 tokens of prompt and 20 of answer on average\n")
	assert.Contains(t, out, "played at: 25.1/s on 3 servers: A model of 8 billion parameters in 16 bits")
	assert.Empty(t, log)
	rows := rowsOf(out)
	require.Len(t, rows, 5, out)
	hit := func(row string) float64 {
		require.Contains(t, rows, row)
		value, err := strconv.ParseFloat(strings.TrimSuffix(rows[row][7], "%"), 64)
		require.NoError(t, err)
		return value
	}
	assert.Greater(t, hit("picker, default"), 75.0)
	assert.Less(t, hit("picker, file"), hit("picker, default"), "the other configuration chooses at random")
	for _, reference := range []string{"greedy", "lmetric", "roundrobin"} {
		assert.Contains(t, rows, reference)
	}
	assert.Equal(t, "90-90", rows["roundrobin"][8])

	again, _ := run(t, o)
	assert.Equal(t, out, again, "the same seed gives the same table")
	o.Rate = 50
	out, _ = run(t, o)
	assert.Contains(t, out, "played at: 50/s on 3 servers")
	o.Rate, o.Load, o.Requests, o.Replicas, o.Config = 0, 0.5, 40, 2, ""
	out, _ = run(t, o)
	assert.Contains(t, out, "recording: 40 requests")
	assert.NotContains(t, out, "played at: 25.")
}

// With fields of this program, the table also has what the real servers did.
func TestReplayOfOurOwnRecording(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Recording = recordingOf(t, 100, func(i int) string {
		if i%10 == 9 {
			return `, "status": 503, "endpoints": 4`
		}
		return fmt.Sprintf(`, "status": 200, "endpoints": 4, "endpoint": %d, "ttft_ms": 50, "duration_ms": 1000, "prompt_tokens": 2000, "cached_tokens": 500, "streaming": true`, i%2)
	})
	out, log := run(t, o)
	assert.Equal(t, "10 requests are left out, because their answers were errors\n", log)
	assert.Contains(t, out, "on 4 servers")
	assert.Equal(t, []string{"50", "50", "50", "1000", "1000", "1000", "100.0%", "25.0%", "36-45", "-"}, rowsOf(out)["recorded"])
}

func TestReplayOfOnePool(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Servers = 2
	o.Recording = recordingOf(t, 100, func(i int) string { return fmt.Sprintf(`, "pool": "ns/%d"`, i%4) })
	err := Run(t.Context(), o, &bytes.Buffer{}, &bytes.Buffer{})
	require.ErrorContains(t, err, `has requests of several pools: choose one with --pool: "ns/0", "ns/1", "ns/2", "ns/3"`)
	o.Pool = "ns/9"
	err = Run(t.Context(), o, &bytes.Buffer{}, &bytes.Buffer{})
	require.ErrorContains(t, err, `has no requests of --pool "ns/9": it has "ns/0"`)
	o.Pool = "ns/1"
	out, _ := run(t, o)
	assert.Contains(t, out, "recording: 25 requests")
}

func TestReplaySaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := recordingOf(t, 30, plain)
	for _, tt := range []struct {
		name string
		give Options
		want string
	}{
		{name: "no servers", give: Options{Recording: good}, want: "does not contain the number of servers: give --servers"},
		{name: "no file", give: Options{Recording: good + "x"}, want: "read --recording: open "},
		{name: "line", give: Options{Recording: writeFile(t, requestLine(1, "")+"{\n")}, want: ": line 2 of the recording: parse JSON: unexpected EOF"},
		{name: "one time", give: Options{Recording: writeFile(t, requestLine(0, "")), Servers: 1}, want: "must have requests at two different times"},
		{name: "configuration", give: Options{Recording: good, Config: writeFile(t, "kind: x")}, want: `kind: "x" is not EndpointPickerConfig`},
		{name: "no configuration", give: Options{Recording: good, Config: good + "x"}, want: "read --config: open "},
		{name: "profile", give: Options{Recording: good, Profile: writeFile(t, `{"slots": 0}`)}, want: "slots, kv_blocks and block_tokens must be positive"},
		{name: "no profile", give: Options{Recording: good, Profile: good + "x"}, want: "read --profile: open "},
		{name: "small servers", give: Options{Recording: good, Servers: 1, Profile: writeFile(t, `{"kv_blocks": 1}`)}, want: "a server has no memory for any of the requests"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.give.Replicas = 1
			require.ErrorContains(t, Run(t.Context(), tt.give, &bytes.Buffer{}, &bytes.Buffer{}), tt.want)
		})
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(o *Options){
		"--recording is missing":                     func(o *Options) { o.Recording = "" },
		"--servers -1 is out of range":               func(o *Options) { o.Servers = -1 },
		"--servers 1001 is out of range":             func(o *Options) { o.Servers = 1001 },
		"--replicas 0 is out of range":               func(o *Options) { o.Replicas = 0 },
		"--requests -1 is negative":                  func(o *Options) { o.Requests = -1 },
		"--load -1 is out of range":                  func(o *Options) { o.Load = -1 },
		"--rate -1 is out of range":                  func(o *Options) { o.Rate = -1 },
		"only one of --load and --rate can be given": func(o *Options) { o.Rate, o.Load = 1, 1 },
	} {
		o := DefaultOptions()
		o.Recording = "f"
		require.NoError(t, o.Validate())
		change(&o)
		require.ErrorContains(t, o.Validate(), want)
	}
}

func TestReplayEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, load := range []float64{0, 0.7} {
		o := DefaultOptions()
		o.Recording, o.Servers, o.Load = recordingOf(t, 30, plain), 2, load
		require.ErrorIs(t, Run(ctx, o, &bytes.Buffer{}, &bytes.Buffer{}), context.Canceled)
	}
}

// Servers and prompts that need too much memory are refused before it is taken.
func TestReplayIsBounded(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.Recording, o.Servers, o.Profile = recordingOf(t, 30, plain), maxServers, writeFile(t, `{"kv_blocks": 1000000}`)
	require.ErrorContains(t, Run(t.Context(), o, &bytes.Buffer{}, &bytes.Buffer{}), "the simulation needs 14 GiB of memory: play fewer --requests, or use fewer --servers")
	o.Profile = writeFile(t, `{"kv_blocks": 1000000000}`)
	require.ErrorContains(t, Run(t.Context(), o, &bytes.Buffer{}, &bytes.Buffer{}), "GiB of memory")
}
