//go:build system

package hermetic

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// byPrefixList is byPrefix, and gateways get a list of endpoints for their retries.
const byPrefixList = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: prefix-cache-scorer
- type: max-score-picker
  parameters: {maxNumOfEndpoints: 4}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: prefix-cache-scorer}
  - {pluginRef: max-score-picker}
`

// attempts is what the servers of a rig are sent, in the order of its arrival.
type attempts struct {
	mu      sync.Mutex
	answers []string // what the next attempts get: models of modelAPIs. All others get a stream
	servers []string // that had the attempts
}

// record makes the servers answer attempts, and record them.
func (a *attempts) record(r *rig) {
	apis := &modelAPIs{}
	for _, s := range r.servers {
		s.serve(func(w http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			a.mu.Lock()
			a.servers = append(a.servers, s.address.String())
			answer := "m"
			if len(a.answers) > 0 {
				answer, a.answers = a.answers[0], a.answers[1:]
			}
			a.mu.Unlock()
			apis.answer(w, q, answer, chatEvents("m"))
		})
	}
}

// seen returns the servers of the attempts up to now.
func (a *attempts) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.servers)
}

// TestEnvoy_RetriesAreJudged has servers that fail their first request, behind an Envoy with the retry policy of the example. The picker
// ejects a server at its first failure: those that failed are ejected, as far as Envoy tells of them, and no others are. Envoy tells of
// the server whose response it passes on, so that the picker knows that the picked one has failed, but not of those between them.
func TestEnvoy_RetriesAreJudged(t *testing.T) {
	t.Parallel()
	program := findEnvoy(t)
	tests := []struct {
		name         string
		answers      []string // of the first attempts
		noRetries    bool
		list         bool // the picker names all servers
		large        bool // the body is over the 1 MiB that Envoy keeps for retries
		wantCode     int
		wantAttempts int
		wantEjected  []int // attempts
	}{
		{name: "another server answers", answers: []string{"no-answer"}, wantCode: 200, wantAttempts: 2, wantEjected: []int{0}},
		{name: "the second of the list answers", answers: []string{"no-answer"}, list: true, wantCode: 200, wantAttempts: 2, wantEjected: []int{0}},
		{name: "the third of the list answers", answers: []string{"no-answer", "no-answer"}, list: true, wantCode: 200, wantAttempts: 3, wantEjected: []int{0}},
		{name: "another server fails", answers: []string{"no-answer", "broken"}, wantCode: 500, wantAttempts: 2, wantEjected: []int{0, 1}},
		{name: "another server refuses", answers: []string{"no-answer", "bad-request"}, wantCode: 400, wantAttempts: 2, wantEjected: []int{0}},
		{
			name: "no server answers", answers: []string{"no-answer", "no-answer", "no-answer", "no-answer"},
			wantCode: 503, wantAttempts: 4, wantEjected: []int{0, 3},
		},
		{name: "too large to be kept", answers: []string{"no-answer"}, large: true, wantCode: 503, wantAttempts: 1, wantEjected: []int{0}},
		{name: "no retries", answers: []string{"no-answer"}, noRetries: true, wantCode: 503, wantAttempts: 1, wantEjected: []int{0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			config, policy := byPrefix, readRetryPolicy(t)
			if tt.list {
				config = byPrefixList
			}
			if tt.noRetries {
				policy = ""
			}
			prompt := longPrompt("a")
			if tt.large {
				prompt = strings.Repeat(prompt, 1<<20/len(prompt)+1)
			}
			page := pageOf(0, 0, 0, "")
			r := start(t, world{
				pages: []string{page, page, page, page}, config: config,
				flags: []string{"--explain", "--eject-after=1", "--ejection-time=1h", "--ejection-time-max=1h"},
			})
			a := &attempts{answers: tt.answers}
			a.record(r)
			url := "http://" + r.startEnvoy(program, policy) + "/v1/completions"

			response := r.complete(url, prompt)
			assert.Equal(t, tt.wantCode, response.StatusCode)
			servers := a.seen()
			require.Len(t, servers, tt.wantAttempts)
			assert.Len(t, slices.Compact(slices.Sorted(slices.Values(servers))), tt.wantAttempts, "no server gets the request twice")
			named, _, _ := strings.Cut(response.Header.Get("X-Fairlead-Pick-Explained"), " of ")
			list := strings.Split(named, ",")
			n := min(len(list), len(servers))
			assert.Equal(t, list[:n], servers[:n], "the list is followed")
			want := map[string]bool{}
			for i := range r.servers {
				want[r.at(i)] = false
			}
			for _, i := range tt.wantEjected {
				want[servers[i]] = true
			}
			assert.Equal(t, want, r.believed())
			served := map[bool]string{true: "picked", false: "other"}[tt.wantAttempts == 1]
			assert.Equal(t, 1.0, r.metrics().sum("fairlead_picker_responses_total", "code", fmt.Sprint(tt.wantCode), "served", served))

			// The prompt is in the cache of the server that answered, and of no other one.
			if tt.wantCode == http.StatusOK {
				assert.Equal(t, http.StatusOK, r.complete(url, prompt).StatusCode)
				assert.Equal(t, servers[len(servers)-1], a.seen()[len(servers)])
			}
		})
	}
}

// complete sends a prompt, and reads the whole response. When it returns, the picker knows that the request is over.
func (r *rig) complete(url, prompt string) *http.Response {
	r.t.Helper()
	ended := r.metrics().sum("fairlead_picker_streams_total")
	response, err := r.client().Post(url, "application/json", strings.NewReader(fmt.Sprintf(`{"model":"m","stream":true,"prompt":%q}`, prompt)))
	require.NoError(r.t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(r.t, err)
	require.NoError(r.t, response.Body.Close())
	r.await(func() bool { return r.metrics().sum("fairlead_picker_streams_total") > ended }, "the stream has ended")
	return response
}

// readRetryPolicy returns the retry policy of the example.
func readRetryPolicy(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(gatewayExamples, "retry-policy.yaml"))
	require.NoError(t, err)
	return string(text)
}
