package replay

import (
	"bytes"
	"context"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
)

// runCommand returns what a command line writes.
func runCommand(t *testing.T, args ...string) (out, log string, err error) {
	t.Helper()
	var o, l bytes.Buffer
	command := NewCommand(&o, &l)
	command.SetArgs(args)
	err = command.ExecuteContext(t.Context())
	return o.String(), l.String(), err
}

func TestCommand(t *testing.T) {
	t.Parallel()
	file := writeFile(t, requestLine(0, "")+requestLine(20, ""))
	out, log, err := runCommand(t, "--recording="+file, "--servers=2")
	require.NoError(t, err)
	assert.Empty(t, log)
	assert.Contains(t, out, "picker, default")

	_, _, err = runCommand(t, "--recording="+file+"x")
	require.ErrorContains(t, err, "no such file")
	assert.Equal(t, 1, service.ExitCode("", err, io.Discard))

	for want, flag := range map[string]string{"endpoint-picker-replay (devel)": "--version", "--recording string": "--help"} {
		out, _, err = runCommand(t, flag)
		require.NoError(t, err)
		assert.Contains(t, out, want)
	}
}

func TestMistakesOfUsersAreUsageErrors(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"unknown flag: -recording: did you mean --recording?":  {"-recording=f"},
		`--rate "x" is not a number`:                           {"--rate=x"},
		`--seed "-1" is not a whole number of 0 or more`:       {"--seed=-1"},
		"--recording is missing: give the file of a recording": {},
		`unexpected argument "f": all settings are flags`:      {"f"},
		"only one of --load and --rate can be given":           {"--recording=f", "--load=0.7", "--rate=3"},
	} {
		_, _, err := runCommand(t, args...)
		require.ErrorContains(t, err, want)
		assert.Equal(t, exitUsage, service.ExitCode("", err, io.Discard))
	}
}

func TestPageHasEveryFlag(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../../docs/services/endpoint-picker-recordings.md")
	require.NoError(t, err)
	NewCommand(io.Discard, io.Discard).Flags().VisitAll(func(f *pflag.Flag) {
		assert.True(t, bytes.Contains(page, []byte("`--"+f.Name+"`")), f.Name)
		assert.True(t, strings.HasSuffix(f.Usage, "."), "%s: %s", f.Name, f.Usage)
	})
}

// lossCounter counts the requests that a recorder loses.
type lossCounter struct{ lost int }

func (*lossCounter) RequestsRecorded(int) {}

func (c *lossCounter) RequestsLost(_ recorder.Loss, n int) { c.lost += n }

// TestReplayOfTheRecorder plays what the picker's recorder has written.
func TestReplayOfTheRecorder(t *testing.T) {
	t.Parallel()
	path, counter := filepath.Join(t.TempDir(), "picks.jsonl"), &lossCounter{}
	synctest.Test(t, func(t *testing.T) {
		r := recorder.New(recorder.Params{Path: path, MaxBytes: 1 << 20, Log: zap.NewNop(), Observer: counter, Clock: clock.RealClock{}})
		stop := runRecorder(t, r)
		for i := range 12 {
			time.Sleep(time.Second)
			r.ForPool("").ObserveRequest(answeredBy(i % 2))
		}
		stop()
	})
	require.Zero(t, counter.lost)
	out, _, err := runCommand(t, "--recording="+path, "--rate=2")
	require.NoError(t, err)
	assert.Contains(t, out, "played at: 2/s on 2 servers")
	for _, row := range []string{"recorded", "picker, default", "greedy", "roundrobin"} {
		assert.Contains(t, out, row)
	}
}

// runRecorder runs a recorder until stop is called.
func runRecorder(t *testing.T, r *recorder.Recorder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// answeredBy returns the record of a request that one of two servers has answered just now, in a stream.
func answeredBy(server int) *request.Record {
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(server)}), 8000)
	now := time.Now()
	return &request.Record{
		PickRecord: request.PickRecord{
			Model: "m", Streaming: true, PoolSize: 2,
			Endpoint:     endpoint.New(endpoint.Description{Identity: endpoint.Identity{Pod: "p", Address: address}}, now, nil),
			PromptTokens: 600, FixedTokens: 600, Prefixes: []uint64{1, 2},
		},
		Outcome: request.Completed, Status: 200, StartTime: now.Add(-time.Second), ArrivalTime: now.Add(-time.Second), FirstContent: now.Add(-time.Second / 2), EndTime: now,
		ContentPieces: 10,
		Usage:         request.Usage{Known: true, Prompt: 600, Output: 10, Cached: 500, CachedKnown: true},
	}
}
