package simulation

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	recordedBlock = 512 // tokens of a hash
	manyFollow    = 16  // a block that more different ones follow belongs to a system prompt, not to a conversation
)

// A Recording contains recorded requests in Mooncake's format: times, lengths, and a hash for each 512 tokens of a prompt.
type Recording struct {
	requests []recordedRequest
	system   map[uint64]bool // hashes of system prompts
}

// recordedRequest is one line. Equal hashes stand for equal text after equal text. The last one may stand for less text.
type recordedRequest struct {
	Timestamp *float64 `json:"timestamp"` // milliseconds
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	Hashes    []uint64 `json:"hash_ids"`

	group int
}

// ReadRecording reads a recording.
func ReadRecording(from io.Reader) (*Recording, error) {
	r := &Recording{}
	decoder := json.NewDecoder(bufio.NewReader(from))
	for {
		var q recordedRequest
		err := decoder.Decode(&q)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = q.validate(r.requests)
		}
		if err != nil {
			return nil, fmt.Errorf("read request %d of the recording: %w", len(r.requests)+1, err)
		}
		r.requests = append(r.requests, q)
	}
	if len(r.requests) < 2 || r.length() == 0 {
		return nil, errors.New("the recording must have requests at two different times")
	}
	r.group()
	return r, nil
}

func (q *recordedRequest) validate(before []recordedRequest) error {
	switch {
	case q.Timestamp == nil:
		return errors.New("timestamp is missing")
	case len(before) > 0 && *q.Timestamp < *before[len(before)-1].Timestamp:
		return errors.New("timestamp is before that of the last request")
	case q.Input < 1 || q.Output < 1:
		return errors.New("input_length and output_length must be at least 1")
	case len(q.Hashes) != (q.Input+recordedBlock-1)/recordedBlock:
		return fmt.Errorf("hash_ids must have one entry for each %d tokens of input_length", recordedBlock)
	}
	return nil
}

// length returns the milliseconds from the first to the last request.
func (r *Recording) length() float64 {
	return *r.requests[len(r.requests)-1].Timestamp - *r.requests[0].Timestamp
}

// group numbers the conversations. A conversation is identified by its first hash that does not belong to a system prompt.
func (r *Recording) group() {
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
		Name: name, Servers: servers, Workload: Workload{rate: rate, fill: r.play},
		Warm: time.Duration(warm * took), Measured: time.Duration((1 - warm) * took),
	}
}

func (r *Recording) play(g *generator) {
	for i := range r.requests {
		q := &r.requests[i]
		at := time.Duration((*q.Timestamp - *r.requests[0].Timestamp) / r.length() * float64(g.end))
		g.arrivals = append(g.arrivals, &arrival{
			at: at, group: q.group, recorded: &recorded{recording: r, request: q, workload: g.Workload}, stream: true,
			prompt: q.Input, out: q.Output, blockTokens: g.blockTokens, chain: q.chain(g, i), measured: at >= g.warm,
		})
	}
}

// chain returns the blocks of prompt and answer. No other request has the blocks of the answer.
func (q *recordedRequest) chain(g *generator, number int) []int32 {
	chain, last := make([]int32, (q.Input+q.Output)/g.blockTokens), uint64(0)
	for i := range chain {
		end := (i+1)*g.blockTokens - 1 // the last token of the block
		if end < q.Input {
			last = scramble(last, q.Hashes[end/recordedBlock], uint64(end%recordedBlock))
		} else {
			last = scramble(last, math.MaxUint64-uint64(number), uint64(end))
		}
		chain[i] = g.content(last)
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

// recorded is a request of a recording. Its text is generated when it is needed: the prompts of a recording together can be too long for
// the memory.
type recorded struct {
	recording *Recording
	request   *recordedRequest
	workload  Workload
}

// text returns a prompt in which equal hashes are equal texts.
func (r *recorded) text() string {
	var b strings.Builder
	left := r.request.Input
	for _, hash := range r.request.Hashes {
		kind := r.request.group
		if r.recording.system[hash] {
			kind = 0
		}
		size := int(math.Round(float64(min(left, recordedBlock)) * r.workload.bytesOf(kind)))
		start := fmt.Sprintf("%016x ", scramble(hash, recordedBlock)) // no two hashes have the same text
		start = start[:min(size, len(start))]
		all := prose()
		from := int(scramble(hash) % uint64(len(all)-size))
		b.WriteString(start)
		b.WriteString(all[from : from+size-len(start)])
		left -= recordedBlock
	}
	return b.String()
}
