package simulation

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

const (
	warm     = 2 * time.Second
	measured = 18 * time.Second
)

func generated(t *testing.T, w Workload, seed uint64) []*arrival {
	t.Helper()
	arrivals, _ := w.generateArrivals(seed, UsualEngine().BlockTokens, warm, measured)
	require.NotEmpty(t, arrivals)
	return arrivals
}

func TestTrafficHasItsRate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		workload Workload
		slack    float64 // of the rate
	}{
		{"prefixes", skewed.Workload(20), 0.1},
		{"conversations", Conversations(20), 0.2}, // they come in groups
		{"mixed", Mixed(20), 0.1},
		{"bursts", skewed.Workload(20).inBursts(3), 0.15},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			arrivals := generated(t, tt.workload, 1)
			assert.InEpsilon(t, 20*(warm+measured).Seconds(), len(arrivals), tt.slack)
			last := time.Duration(0)
			for i, a := range arrivals {
				assert.Equal(t, i, a.number)
				assert.GreaterOrEqual(t, a.at, last, "in their order")
				assert.Less(t, a.at, warm+measured)
				assert.Equal(t, a.at >= warm, a.measured)
				assert.Positive(t, a.out)
				assert.InDelta(t, (a.prompt+a.out)/a.blockTokens, len(a.chain), 1)
				assert.GreaterOrEqual(t, a.blockCount(), len(a.chain))
				assert.Less(t, len(a.promptChain())*a.blockTokens, a.prompt, "the last token is not in it")
				last = a.at
			}
		})
	}
}

func TestBurstsAreDenser(t *testing.T) {
	t.Parallel()
	inside := 0
	arrivals := generated(t, skewed.Workload(50).inBursts(3), 1)
	for _, a := range arrivals {
		if a.at%(4*time.Second) < time.Second {
			inside++
		}
	}
	assert.InDelta(t, 0.75, float64(inside)/float64(len(arrivals)), 0.05, "three times the rate in a quarter of the time")
}

func TestSameSeedGivesTheSameTraffic(t *testing.T) {
	t.Parallel()
	for _, s := range StandardScenarios() {
		one, contents := s.Workload.generateArrivals(3, 16, 0, time.Second/4)
		again, same := s.Workload.generateArrivals(3, 16, 0, time.Second/4)
		assert.True(t, reflect.DeepEqual(one, again), s.Name)
		assert.Equal(t, contents, same, s.Name)
		_, others := s.Workload.generateArrivals(4, 16, 0, time.Second/4)
		assert.NotEqual(t, contents, others, s.Name)
	}
}

func TestRequestsOfAGroupShareTheirPrefix(t *testing.T) {
	t.Parallel()
	byGroup := map[int]*arrival{}
	shared := 0
	for _, a := range generated(t, even.Workload(20), 1) {
		if first := byGroup[a.group]; first != nil {
			shared++
			n := 2560 / a.blockTokens
			assert.Equal(t, first.chain[:n], a.chain[:n])
			assert.NotEqual(t, first.chain[n+1], a.chain[n+1], "what follows is each one's own")
		}
		byGroup[a.group] = a
	}
	assert.Len(t, byGroup, even.Count)
	assert.Positive(t, shared)
}

func TestHottestPrefixIsHot(t *testing.T) {
	t.Parallel()
	count := map[int]int{}
	arrivals := generated(t, skewed.Workload(50), 1)
	for _, a := range arrivals {
		count[a.group]++
	}
	hottest := 0
	for _, n := range count {
		hottest = max(hottest, n)
	}
	assert.InDelta(t, 0.28, float64(hottest)/float64(len(arrivals)), 0.03)
}

func TestTurnsRepeatAllThatWasSaid(t *testing.T) {
	t.Parallel()
	last := map[int]*arrival{}
	turns := 0
	for _, a := range generated(t, Conversations(20), 1) {
		if before := last[a.group]; before != nil {
			turns++
			require.Greater(t, len(a.chain), len(before.chain))
			assert.Equal(t, before.chain, a.chain[:len(before.chain)], "prompt and answer of the turn before")
			assert.Equal(t, before.messages, a.messages[:len(before.messages)])
			assert.Greater(t, a.at, before.at)
		}
		last[a.group] = a
	}
	assert.Positive(t, turns)
}

func TestAnswersComeInOnePieceIfSo(t *testing.T) {
	t.Parallel()
	streams := func(w Workload) float64 {
		n := 0
		arrivals := generated(t, w, 1)
		for _, a := range arrivals {
			if a.stream {
				n++
			}
		}
		return float64(n) / float64(len(arrivals))
	}
	assert.EqualValues(t, 1, streams(Mixed(20)))
	assert.InDelta(t, 0.5, streams(Mixed(20).inOnePiece(0.5)), 0.05)
	assert.Zero(t, streams(Mixed(20).inOnePiece(1)))
}

// The body is JSON as clients write it, of about as many tokens for the picker as for the server.
func TestBodyIsARequest(t *testing.T) {
	t.Parallel()
	parsers, err := api.NewParsers(api.AllParsers()...)
	require.NoError(t, err)
	first := 0
	for _, w := range []Workload{even.Workload(5), Conversations(5), Mixed(5).inOnePiece(0.5)} {
		for _, a := range generated(t, w, 1) {
			body := a.appendBody(nil)
			var read struct {
				Model    string
				Messages []struct{ Role, Content string }
				Stream   bool
			}
			require.NoError(t, json.Unmarshal(body, &read))
			assert.Equal(t, modelName, read.Model)
			assert.Equal(t, a.stream, read.Stream)
			require.Len(t, read.Messages, len(a.messages))
			for i, m := range a.messages {
				assert.Equal(t, m.text, read.Messages[i].Content)
				assert.Equal(t, m.role, read.Messages[i].Role)
			}
			var r api.Request
			require.NoError(t, r.ParseIncoming(parsers, api.Incoming{Path: path, Body: body}, 1<<20))
			assert.Equal(t, modelName, r.Model)
			assert.Equal(t, a.stream, r.Stream)
			assert.InEpsilon(t, a.prompt, r.Tokens, 0.15)
			if strings.HasPrefix(string(body), `{"model"`) {
				first++
			}
		}
	}
	assert.Positive(t, first)
}

func TestScenariosHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range append(StandardScenarios(), OtherScenarios()...) {
		names = append(names, s.Name)
		assert.NotEmpty(t, s.Servers, s.Name)
		assert.Positive(t, s.Workload.rate, s.Name)
	}
	slices.Sort(names)
	assert.Len(t, slices.Compact(slices.Clone(names)), len(names))
}
