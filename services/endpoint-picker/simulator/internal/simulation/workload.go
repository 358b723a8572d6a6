package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	charsPerToken = 4.0 // as the picker assumes
	modelName     = "base-model"
	path          = "/v1/chat/completions"
)

// message is a message of one side.
type message struct {
	role, text string
	json       []byte // of the whole message
}

func newMessage(role, text string) message {
	encoded, err := json.Marshal(struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}{role, text})
	if err != nil {
		panic(err) // unreachable: it is all text
	}
	return message{role: role, text: text, json: encoded}
}

// arrival is one request: its content, its time and its answer. It is never changed.
type arrival struct {
	at          time.Duration
	number      int
	group       int // its prefix, or its conversation
	messages    []message
	recorded    *recordedPrompt // instead of messages
	stream      bool
	leaves      time.Duration // from the first token until the client goes, before the last one; 0 for never
	prompt, out int           // tokens
	blockTokens int
	chain       []int32 // numbers of the blocks of prompt and answer: equal if everything up to there is equal
	measured    bool
}

// promptChain returns the blocks that can be found in a cache. The last token is always computed, so they are never all.
func (a *arrival) promptChain() []int32 { return a.chain[:(a.prompt-1)/a.blockTokens] }

// blockCount returns the number of blocks of prompt and answer.
func (a *arrival) blockCount() int { return (a.prompt + a.out + a.blockTokens - 1) / a.blockTokens }

// appendBody appends the request in the format of OpenAI's API. The position of the model varies.
func (a *arrival) appendBody(body []byte) []byte {
	const model = `"model":"` + modelName + `"`
	first, last := model, fmt.Sprintf(`"max_tokens":512,"stream":%t`, a.stream)
	if a.number%2 == 1 {
		first, last = last, model
	}
	body = append(body, "{"+first+`,"messages":[`...)
	messages := a.messages
	if a.recorded != nil {
		messages = []message{newMessage("user", a.recorded.promptText())}
	}
	for i := range messages {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, messages[i].json...)
	}
	return append(body, "],"+last+"}"...)
}

// A Workload is a kind of traffic.
type Workload struct {
	rate            float64   // requests per second
	burst           float64   // factor of the rate in one second of four, if above 1; less in the others
	unstreamedShare float64   // share of unstreamed answers
	words           bool      // tokens are words and parts of words, and some texts are code
	bytes           []float64 // per token, without words: text of kind k has entry k modulo their number; four without entries
	fill            func(g *generator)
}

// generator creates the arrivals of one workload from one seed.
type generator struct {
	Workload

	seed        uint64
	blockTokens int
	warm, end   time.Duration
	arrivals    []*arrival
	contents    map[uint64]int32 // numbers of blocks, by the hash of everything up to there
}

// generateArrivals returns the arrivals of a workload in order, and their number of different blocks.
func (w Workload) generateArrivals(seed uint64, blockTokens int, warm, measured time.Duration) (arrivals []*arrival, contents int) {
	g := &generator{Workload: w, seed: seed, blockTokens: blockTokens, warm: warm, end: warm + measured, contents: map[uint64]int32{}}
	w.fill(g)
	slices.SortStableFunc(g.arrivals, func(a, b *arrival) int { return cmp.Compare(a.at, b.at) })
	for i, a := range g.arrivals {
		a.number = i
	}
	return g.arrivals, len(g.contents)
}

// prose is a source of texts: words, with punctuation, quotes and line breaks that JSON must escape.
var prose = sync.OnceValue(func() string {
	return generateWords(9, " ", " ", " ", " ", " ", " ", " ", " ", ", ", ". ", "\n", " \"", "\" ", "; ")
})

// generateWords generates words of up to a number of letters.
func generateWords(letters int, ends ...string) string {
	const size = 1 << 20
	r := rand.New(rand.NewPCG(7, 7))
	var b strings.Builder
	for b.Len() < size {
		for range 2 + r.IntN(letters-1) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		b.WriteString(ends[r.IntN(len(ends))])
	}
	return b.String()
}

// bytesOf returns the bytes per token of a kind of text.
func (w Workload) bytesOf(kind int) float64 {
	if len(w.bytes) == 0 {
		return charsPerToken
	}
	return w.bytes[kind%len(w.bytes)]
}

// contentNumber returns the number of a block's content, by its hash.
func (g *generator) contentNumber(hash uint64) int32 {
	number, known := g.contents[hash]
	if !known {
		number = int32(len(g.contents))
		g.contents[hash] = number
	}
	return number
}
