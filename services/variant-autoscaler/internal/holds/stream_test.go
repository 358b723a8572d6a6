package holds

import (
	"bufio"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// recorded is what the handler of the endpoint picker writes. Its own test makes it.
const recorded = "../../../endpoint-picker/internal/pool/testdata/stream.txt"

// TestStreamOfThePicker follows the stream of a real picker, line by line.
func TestStreamOfThePicker(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(recorded)
	require.NoError(t, err)
	request, text, found := strings.Cut(string(raw), "\n\n")
	require.True(t, found)
	head, body, found := strings.Cut(text, "\n\n")
	require.True(t, found)
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head+"\n\n")), nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())

	synctest.Test(t, func(t *testing.T) {
		w, next := newWorld(t), make(chan struct{}, strings.Count(body, "\n"))
		w.pools.set(t, poolObject("models", "chat"), poolObject("models", "other"))
		w.endpoints.set(t, slice("models", "10.0.0.1"))
		w.serve("10.0.0.1", func(to http.ResponseWriter, r *http.Request) {
			if r.Method+" "+r.URL.Path != request {
				http.NotFound(to, r)
				return
			}
			to.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
			to.WriteHeader(answer.StatusCode)
			for line := range strings.Lines(body) {
				<-next
				_, _ = to.Write([]byte(line))
				_ = http.NewResponseController(to).Flush()
			}
			<-r.Context().Done()
		})
		chat, other := snapshot.PoolKey{Namespace: "models", Name: "chat"}, snapshot.PoolKey{Namespace: "models", Name: "other"}
		llama, odd := chat.WithModel("meta/llama-3.1-8b"), chat.WithModel("<\"\u00fc\n>")
		stop := w.run(llama, odd, other.WithModel("meta/llama-3.1-8b"))
		defer stop()

		var seen [][2]int
		for range cap(next) {
			next <- struct{}{}
			sleep(time.Second)
			of, watched := w.waiting(llama)
			assert.True(t, watched, "a picker that speaks is watched")
			ofOdd, _ := w.waiting(odd)
			seen = append(seen, [2]int{of, ofOdd})
		}
		assert.Equal(t, [][2]int{{0, 0}, {0, 0}, {2, 1}, {0, 1}, {0, 0}, {0, 0}, {0, 0}}, seen)
		assert.ElementsMatch(t, []snapshot.ModelKey{odd, llama}, w.firstHolds(), "aliases and requests without a model are not reported")
		assert.Empty(t, w.logs.All())
	})
}
