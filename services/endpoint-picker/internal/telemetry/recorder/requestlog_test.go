package recorder

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return noon.Add(d) }

func TestLine(t *testing.T) {
	t.Parallel()
	e := endpoint.New(endpoint.Description{Identity: endpoint.Identity{Namespace: "ns", Pod: "a", Address: netip.MustParseAddrPort("10.0.0.1:8000")}},
		noon, nil)
	tests := []struct {
		name string
		give request.Record
		want string
	}{
		{
			name: "everything is known",
			give: request.Record{
				PickRecord: request.PickRecord{
					Model: "chat", Target: "chat-v2", Rewrite: "ns/canary", Fairness: "tenant", Objective: "batch", Priority: -1, Streaming: true,
					Endpoint:      e,
					PickDuration:  20 * time.Microsecond,
					PromptTokens:  30,
					MatchedTokens: 16,
				},
				Outcome: request.Completed, RequestID: "r-1", Path: "/v1/chat/completions?key=secret", Span: request.Span{Trace: [16]byte{0x4b, 15: 1}, Sampled: true},
				Served: "10.0.0.2:8000", Status: 200, StartTime: noon, ArrivalTime: after(time.Millisecond),
				FirstContent: after(250 * time.Millisecond), EndTime: after(2 * time.Second), RequestBytes: 10, ResponseBytes: 20, Usage: request.Usage{Known: true, Prompt: 31, Output: 7, Cached: 15},
			},
			want: `{"level":"info","message":"Handled request","outcome":"completed","duration":2,"requestID":"r-1","traceID":"4b000000000000000000000000000001",
				"path":"/v1/chat/completions","model":"chat","target":"chat-v2","rewrite":"ns/canary","fairness":"tenant","objective":"batch","priority":-1,
				"requestBytes":10,"promptTokens":30,"endpoint":"10.0.0.1:8000","pod":"ns/a","served":"10.0.0.2:8000","matchedTokens":16,"pick":0.00002,
				"status":200,"streaming":true,"firstToken":0.25,"responseBytes":20,"inputTokens":31,"outputTokens":7,"cachedTokens":15}`,
		},
		{
			name: "refused",
			give: request.Record{Outcome: request.Refused, Status: 503, Reason: "no ready endpoints in the pool", StartTime: noon, EndTime: noon},
			want: `{"level":"info","message":"Handled request","outcome":"refused","duration":0,"status":503,"reason":"no ready endpoints in the pool"}`,
		},
		{
			name: "a name without end",
			give: request.Record{PickRecord: request.PickRecord{Model: strings.Repeat("x", 999)}, Outcome: request.Unpicked, StartTime: noon, EndTime: noon},
			want: `{"level":"info","message":"Handled request","outcome":"unpicked","duration":0,"model":"` + strings.Repeat("x", maxLength) + `"}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			log, err := logging.New(logging.DefaultOptions(), &out)
			require.NoError(t, err)
			NewLog(log).ObserveRequest(&tt.give)
			var line map[string]any
			require.NoError(t, json.Unmarshal(out.Bytes(), &line))
			delete(line, "time")
			got, err := json.Marshal(line)
			require.NoError(t, err)
			assert.JSONEq(t, tt.want, string(got))
		})
	}
}

func TestNothingIsMadeForALevelThatIsOff(t *testing.T) {
	log, err := logging.New(logging.Options{Level: "warn", Format: logging.FormatJSON}, &bytes.Buffer{})
	require.NoError(t, err)
	l, record := NewLog(log), &request.Record{Outcome: request.Refused}
	assert.Zero(t, testing.AllocsPerRun(100, func() { l.ObserveRequest(record) }))
}
