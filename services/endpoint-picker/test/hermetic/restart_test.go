//go:build system

package hermetic

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// byPrefixes chooses a server with the longest cached prefix, however slow the machine makes it look.
const byPrefixes = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: prefix-cache-scorer
`

// conversations are conversations with model servers, which record the server of each turn.
type conversations struct {
	mu     sync.Mutex
	server map[string]string // of the last turn, by conversation
	texts  []string
}

// answerTurn answers a turn, at a server.
func (c *conversations) answerTurn(server string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Prompt string }
		_ = json.NewDecoder(r.Body).Decode(&request)
		name, _, _ := strings.Cut(request.Prompt, ":")
		c.mu.Lock()
		c.server[name] = server
		c.mu.Unlock()
		_, _ = io.WriteString(w, `{"model": "m", "choices": [{"text": "word"}], "usage": {"prompt_tokens": 500, "completion_tokens": 16}}`)
	}
}

// continueAll sends the next turn of all conversations. It returns how many stay with the server of their last turn.
func (c *conversations) continueAll(r *rig) (stay int) {
	client := r.client()
	for i := range c.texts {
		name := fmt.Sprintf("conversation %d", i)
		before := c.server[name]
		c.texts[i] += strings.Repeat(fmt.Sprintf(" word%d.%d", i, len(c.texts[i])), 100)
		response, _ := r.through(client, "/v1/completions", fmt.Sprintf(`{"model": "m", "prompt": "%s:%s"}`, name, c.texts[i]))
		require.Equal(r.t, http.StatusOK, response.StatusCode)
		if c.server[name] == before {
			stay++
		}
	}
	return stay
}

// A picker that restarts alone keeps conversations with the servers that have their caches, if it has a state file. Without one, or with
// one that it cannot use, it starts as a new one.
func TestRestartKeepsConversations(t *testing.T) {
	t.Parallel()
	const all = 61
	for name, tt := range map[string]struct {
		keep   func(t *testing.T, path string) // what happens to the file between the processes
		stay   bool
		logged string
	}{
		"with the file": {keep: func(*testing.T, string) {}, stay: true, logged: "Read contents of caches from the state file"},
		"without it": {
			keep:   func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Remove(path)) },
			logged: "Found no state file, started without contents of caches",
		},
		"damaged": {
			keep:   func(t *testing.T, path string) { t.Helper(); require.NoError(t, os.Truncate(path, 1000)) },
			logged: "Ignored the state file, started without contents of caches",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "state")
			page := pageOf(0, 0, 0, "")
			r := start(t, world{
				mode: byFile, pages: []string{page, page, page, page}, config: byPrefixes, flags: []string{proxyFlag, "--state-file=" + file},
			})
			c := &conversations{server: map[string]string{}, texts: make([]string, all)}
			for i, s := range r.servers {
				s.serve(c.answerTurn(r.at(i)))
			}
			c.continueAll(r)
			assert.Equal(t, all, c.continueAll(r), "before the restart")
			r.stop()
			<-r.stopped
			tt.keep(t, file)

			next := r.replica()
			next.await(func() bool { return next.get(next.health(), "/readyz") == "ok\n" }, "ready")
			assert.Equal(t, 1, next.logs.FilterMessage(tt.logged).Len())
			if stay := c.continueAll(next); tt.stay {
				assert.GreaterOrEqual(t, stay, all-1)
			} else {
				assert.Less(t, stay, all-10)
			}
			next.settle()
		})
	}
}
