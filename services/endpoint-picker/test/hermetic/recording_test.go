//go:build system

package hermetic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
)

// TestRecording checks that a recording has nothing that clients wrote. The simulator's TestReplayOfTheRecorder plays one.
func TestRecording(t *testing.T) {
	t.Parallel()
	const marker, requests = "MARKER", 12
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "picks.jsonl")
			r := start(t, world{mode: m, pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, flags: []string{"--record-file=" + path}})
			events := []string{"content-type", "text/event-stream"}
			for i := range requests {
				shared := strings.Repeat(marker+fmt.Sprint(i%2)+" ", 600)
				body := fmt.Sprintf(`{"model": "model-%s", "prompt": %q, "stream": true, "user": "user-%s"}`, marker, shared+fmt.Sprint(i), marker)
				headers := []string{"x-request-id", marker, "authorization", marker, "x-session-token", marker}
				r.serve(request{path: "/v1/completions?" + marker, body: body, headers: headers}, response{headers: events, pieces: []string{sseOpenAI}})
			}
			r.ask(unreadable("{" + marker)).refused()
			r.settle()
			assert.Zero(t, r.metrics().sum("fairlead_picker_recording_lost_requests_total"))
			r.stop()
			<-r.stopped

			text, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.NotContains(t, strings.ToLower(string(text)), strings.ToLower(marker))
			assert.NotContains(t, string(text), r.servers[0].address.Addr().String())
			var recorded []recorder.RecordedRequest
			for lines := json.NewDecoder(bytes.NewReader(text)); lines.More(); {
				var line recorder.RecordedRequest
				require.NoError(t, lines.Decode(&line))
				recorded = append(recorded, line)
			}
			require.Len(t, recorded, requests)
			first, other, again := recorded[0], recorded[1], recorded[2]
			assert.Equal(t, first.Hashes[0], again.Hashes[0])
			assert.NotEqual(t, first.Hashes[0], other.Hashes[0])
			assert.Equal(t, []int{10, 7, 5, 200, 2}, []int{first.Output, first.Prompt, *first.Cached, first.Status, first.Endpoints})
			assert.NotNil(t, first.TTFT)
		})
	}
}

// A disk that is full, or a file that cannot be made, must not cost a request.
func TestRequestsAreServedWithoutTheRecording(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--record-file=" + filepath.Join(t.TempDir(), "absent", "picks.jsonl")}})
	for range 3 {
		r.serve(request{body: ofModel}, response{headers: []string{"content-type", "text/event-stream"}, pieces: []string{sseOpenAI}})
	}
	r.await(func() bool {
		return r.metrics().sum("fairlead_picker_recording_lost_requests_total", "reason", "file") == 3
	}, "counted")
	assert.Equal(t, 1, r.logs.FilterMessageSnippet("Could not write the recording").Len())
}
