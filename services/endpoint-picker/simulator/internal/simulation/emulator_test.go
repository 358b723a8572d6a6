package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/steptime"
)

// emulated are the parameters of the emulated model server with its realistic profile.
func emulated() Engine {
	e := UsualEngine()
	e.Law, e.StaleGauges, e.PageTime = steptime.Realistic(), true, 10*time.Millisecond
	return e
}

// answered is what a client measures of one answer.
type answered struct{ ttft, perToken time.Duration }

// pageInterval is the time between two scrapes of the server, as of a busy one.
const pageInterval = 100 * time.Millisecond

// prompts returns requests at a rate: one of eight beginnings of 96 blocks, which the cache has after its first use, then 64 to 1024 tokens
// of their own, and answers of 16 to 200 tokens. None of their numbers comes from a law.
func prompts(rate float64, n int) []*arrival {
	const beginnings, shared = 8, 96 // blocks
	random := rand.New(rand.NewPCG(*firstSeed, 9))
	var arrivals []*arrival
	at, content := time.Duration(0), int32(beginnings*shared)
	for range n {
		at += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
		a := &arrival{at: at, group: random.IntN(beginnings), stream: true, measured: true, blockTokens: 16, out: 16 + random.IntN(185)}
		a.prompt = shared*a.blockTokens + 64 + random.IntN(961)
		for i := range (a.prompt + a.out) / a.blockTokens {
			if i < shared {
				a.chain = append(a.chain, int32(a.group*shared+i))
				continue
			}
			a.chain = append(a.chain, content)
			content++
		}
		arrivals = append(arrivals, a)
	}
	return arrivals
}

// simulateAlone serves the requests on one simulated server.
func simulateAlone(arrivals []*arrival) []answered {
	const anyContent = 1 << 20
	line := &timeline{}
	e := emulated()
	s := &server{batch: batch{Engine: e, noise: rand.New(rand.NewPCG(*firstSeed, 7))}, timeline: line, cache: newBlockCache(e.Blocks, anyContent)}
	answers := make([]answered, len(arrivals))
	open := len(arrivals)
	for i, a := range arrivals {
		line.scheduleAt(a.at, func() {
			s.enqueue(&job{arrival: a, watcher: whenEnded(func(j *job) {
				answers[i] = answered{j.first - a.at, (j.done - j.first) / time.Duration(a.out-1)}
				open--
			})})
		})
	}
	var read func()
	read = func() {
		s.metricsPage()
		line.scheduleAfter(pageInterval, read)
	}
	read()
	line.runWhile(func() bool { return open > 0 })
	return answers
}

// whenEnded is a watcher of the last token.
type whenEnded func(j *job)

func (whenEnded) onFirstToken(*job) {}
func (w whenEnded) onEnd(j *job)    { w(j) }
func (whenEnded) onMoreTokens(*job) {}
func (whenEnded) onServerLost(*job) {}

// completion is the body of a request: the prompt as tokens, one for each token of a block, by its content.
func completion(a *arrival) []byte {
	body := fmt.Appendf(nil, `{"model":"m","stream":true,"max_tokens":%d,"prompt":[`, a.out)
	for i := range a.prompt {
		content := int32(a.number)
		if block := i / a.blockTokens; block < len(a.chain) {
			content = a.chain[block]
		}
		body = fmt.Appendf(body, "%d,", 1000+content%50_000)
	}
	return append(body[:len(body)-1], "]}"...)
}

// The requests of the comparison are what its table says: a cache that is large enough, and known shares.
func TestPromptsForTheEmulator(t *testing.T) {
	t.Parallel()
	arrivals := prompts(8, 100)
	answers := simulateAlone(arrivals)
	require.Len(t, answers, 100)
	seen := map[string]bool{}
	for i, a := range arrivals {
		assert.Positive(t, answers[i].ttft)
		assert.Positive(t, answers[i].perToken)
		assert.Len(t, a.chain, (a.prompt+a.out)/16)
		body := string(completion(a))
		assert.Equal(t, a.prompt-1, strings.Count(body, ",")-3, "as many tokens as the prompt has")
		assert.False(t, seen[body])
		seen[body] = true
		for k, other := range arrivals[:i] {
			same := 0
			for same < min(len(a.chain), len(other.chain)) && a.chain[same] == other.chain[same] {
				same++
			}
			want := 0
			if a.group == other.group {
				want = 96
			}
			require.Equal(t, want, same, "requests %d and %d", i, k)
		}
	}
}
