package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
)

const manyFollow = 16 // a block that more different ones follow belongs to a system prompt, not to a conversation

// A Recording contains recorded requests, by time of arrival.
type Recording struct {
	requests []recordedRequest
	system   map[uint64]bool // hashes of system prompts
	// tokens is the number of the model server's tokens for each token of a request's length; 0 if the lengths are those of a server.
	tokens float64
}

// recordedRequest is one request. Equal hashes stand for equal text after equal text. The last one may stand for less text.
type recordedRequest struct {
	recorder.RecordedRequest

	group  int
	input  int  // tokens for the model server
	stream bool // the answer comes in pieces
}

// NewRecording returns a recording of requests that are sorted by time of arrival.
func NewRecording(requests []recorder.RecordedRequest) (*Recording, error) {
	r := &Recording{tokens: serverTokens(requests)}
	for i := range requests {
		q := recordedRequest{RecordedRequest: requests[i], input: requests[i].Input, stream: true}
		if r.tokens > 0 {
			q.input = max(1, int(math.Round(float64(q.Input)*r.tokens)))
		}
		if q.Streaming != nil {
			q.stream = *q.Streaming
		}
		r.requests = append(r.requests, q)
	}
	if len(r.requests) < 2 || r.durationMs() == 0 {
		return nil, errors.New("the recording must have requests at two different times")
	}
	r.numberConversations()
	return r, nil
}

// serverTokens returns how many tokens the model servers counted for each token of the picker, which estimates; 0 if no server reported
// any. One number for all requests keeps equal beginnings equal.
func serverTokens(requests []recorder.RecordedRequest) float64 {
	reported, estimated := 0.0, 0.0
	for i := range requests {
		if q := &requests[i]; q.Prompt > 0 {
			reported += float64(q.Prompt)
			estimated += float64(q.Input)
		}
	}
	return reported / max(estimated, 1)
}

// Rate returns the requests per second of the recording.
func (r *Recording) Rate() float64 { return float64(len(r.requests)) / r.durationMs() * 1e3 }

// durationMs returns the milliseconds from the first to the last request.
func (r *Recording) durationMs() float64 {
	return *r.requests[len(r.requests)-1].Timestamp - *r.requests[0].Timestamp
}

// numberConversations numbers the conversations. A conversation is identified by its first hash that does not belong to a system prompt.
func (r *Recording) numberConversations() {
	following := map[uint64]map[uint64]bool{}
	for i := range r.requests {
		hashes := r.requests[i].Hashes
		for k, hash := range hashes[:len(hashes)-1] {
			if following[hash] == nil {
				following[hash] = map[uint64]bool{}
			}
			following[hash][hashes[k+1]] = true
		}
	}
	r.system = map[uint64]bool{}
	for hash, next := range following {
		r.system[hash] = len(next) > manyFollow
	}
	groups := map[uint64]int{}
	for i := range r.requests {
		q := &r.requests[i]
		own := max(slices.IndexFunc(q.Hashes, func(h uint64) bool { return !r.system[h] }), 0)
		if _, ok := groups[q.Hashes[own]]; !ok {
			groups[q.Hashes[own]] = len(groups)
		}
		q.group = groups[q.Hashes[own]]
	}
}

// Scenario returns a scenario with the requests of the recording on these servers. The order and the bursts stay, but time runs faster or
// slower. The first tenth is not measured.
func (r *Recording) Scenario(name string, rate float64, servers []Engine) Scenario {
	const warm = 0.1
	took := float64(len(r.requests)) / rate * float64(time.Second)
	return Scenario{
		Name: name, Servers: servers, Workload: Workload{rate: rate, fill: r.addArrivals},
		Warm: time.Duration(warm * took), Measured: time.Duration((1 - warm) * took),
	}
}

func (r *Recording) addArrivals(g *generator) {
	for i := range r.requests {
		q := &r.requests[i]
		at := time.Duration((*q.Timestamp - *r.requests[0].Timestamp) / r.durationMs() * float64(g.end))
		g.arrivals = append(g.arrivals, &arrival{
			at: at, group: q.group, recorded: &recordedPrompt{recording: r, request: q, workload: g.Workload}, stream: q.stream,
			prompt: q.input, out: q.Output, blockTokens: g.blockTokens, chain: q.blockChain(g, i, cmp.Or(r.tokens, 1)),
			measured: at >= g.warm,
		})
	}
}

// blockChain returns the blocks of prompt and answer. No other request has the blocks of the answer.
func (q *recordedRequest) blockChain(g *generator, number int, tokens float64) []int32 {
	chain, last := make([]int32, (q.input+q.Output)/g.blockTokens), uint64(0)
	for i := range chain {
		end := (i+1)*g.blockTokens - 1 // the last token of the block
		if end < q.input {
			recorded := min(int(float64(end)/tokens), q.Input-1)
			last = scramble(last, q.Hashes[recorded/request.PrefixTokens], uint64(end))
		} else {
			last = scramble(last, math.MaxUint64-uint64(number), uint64(end))
		}
		chain[i] = g.contentNumber(last)
	}
	return chain
}

// scramble hashes numbers with the finalizer of SplitMix64.
func scramble(numbers ...uint64) uint64 {
	h := uint64(0)
	for _, n := range numbers {
		h += n + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// recordedPrompt is a request of a recording. Its text is generated when it is needed: the prompts of a recording together can be too
// long for the memory.
type recordedPrompt struct {
	recording *Recording
	request   *recordedRequest
	workload  Workload
}

// promptText returns a prompt in which equal hashes are equal texts.
func (r *recordedPrompt) promptText() string {
	var b strings.Builder
	left := r.request.Input
	for _, hash := range r.request.Hashes {
		kind := r.request.group
		if r.recording.system[hash] {
			kind = 0
		}
		bytes := r.workload.bytesOf(kind)
		if r.recording.tokens > 0 {
			bytes = charsPerToken // the lengths are those of a picker
		}
		size := int(math.Round(float64(min(left, request.PrefixTokens)) * bytes))
		start := fmt.Sprintf("%016x ", scramble(hash, request.PrefixTokens)) // no two hashes have the same text
		start = start[:min(size, len(start))]
		all := prose()
		from := int(scramble(hash) % uint64(len(all)-size))
		b.WriteString(start)
		b.WriteString(all[from : from+size-len(start)])
		left -= request.PrefixTokens
	}
	return b.String()
}
