package simulation

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	charsPerToken = 4
	modelName     = "base-model"
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// arrival is one request: what is asked, when, and what the answer will be. It is never changed.
type arrival struct {
	at          time.Duration
	number      int
	group       int // its prefix, or its conversation
	messages    []message
	stream      bool
	prompt, out int      // tokens
	chain       []uint64 // hashes of the blocks of prompt and answer, each of all before it too
	measured    bool
}

// promptChain is that of the blocks that may be found in a cache. The last token is always computed, so it is never all.
func (a *arrival) promptChain() []uint64 { return a.chain[:(a.prompt-1)/blockTokens] }

// blocks is how many prompt and answer take.
func (a *arrival) blocks() int { return (a.prompt + a.out + blockTokens - 1) / blockTokens }

// body is the request as a client of OpenAI's API writes it. The model comes now first, now last.
func (a *arrival) body() []byte {
	type options struct {
		MaxTokens int  `json:"max_tokens"`
		Stream    bool `json:"stream"`
	}
	o := options{MaxTokens: 512, Stream: a.stream}
	var v any = struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
		options
	}{modelName, a.messages, o}
	if a.number%2 == 1 {
		v = struct {
			Messages []message `json:"messages"`
			options
			Model string `json:"model"`
		}{a.messages, o, modelName}
	}
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // not reached: it is all text and numbers
	}
	return body
}

// A Workload is a kind of traffic.
type Workload struct {
	rate  float64 // requests a second
	burst float64 // times the rate in one second of four, when more than 1; less in the others
	whole float64 // part of the answers that comes in one piece
	fill  func(g *generator)
}

// inBursts has the traffic come in bursts of so many times its rate.
func (w Workload) inBursts(burst float64) Workload {
	w.burst = burst
	return w
}

// inOnePiece has a part of the answers not streamed.
func (w Workload) inOnePiece(part float64) Workload {
	w.whole = part
	return w
}

// generator makes the arrivals of one workload from one seed.
type generator struct {
	*rand.Rand
	Workload

	corpus    string
	warm, end time.Duration
	arrivals  []*arrival
}

// generate makes the arrivals of a workload, in their order.
func (w Workload) generate(seed uint64, warm, measured time.Duration) []*arrival {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	g := &generator{Rand: r, Workload: w, corpus: prose(r, 1<<20), warm: warm, end: warm + measured}
	w.fill(g)
	slices.SortStableFunc(g.arrivals, func(a, b *arrival) int { return int(a.at - b.at) })
	for i, a := range g.arrivals {
		a.number = i
	}
	return g.arrivals
}

// prose makes characters of words, with punctuation, quotes and line breaks that JSON must escape.
func prose(r *rand.Rand, n int) string {
	ends := []string{" ", " ", " ", " ", " ", " ", " ", " ", ", ", ". ", "\n", " \"", "\" ", "; "}
	var b strings.Builder
	for b.Len() < n {
		for range 2 + r.IntN(8) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		b.WriteString(ends[r.IntN(len(ends))])
	}
	return b.String()[:n]
}

// text is a piece of the corpus of so many tokens.
func (g *generator) text(tokens int) string {
	from := g.IntN(len(g.corpus) - tokens*charsPerToken)
	return g.corpus[from : from+tokens*charsPerToken]
}

// poisson calls back at each arrival of a Poisson process.
func (g *generator) poisson(rate float64, from time.Duration, arrive func(at time.Duration)) {
	for t := from; ; {
		now := rate
		if g.burst > 1 {
			now *= g.swing(t)
		}
		if t += time.Duration(g.ExpFloat64() / now * float64(time.Second)); t >= g.end {
			return
		}
		arrive(t)
	}
}

// swing is what the rate is multiplied with in a burst, or between two, so that its mean stays.
func (g *generator) swing(t time.Duration) float64 {
	const period = 4 * time.Second
	if t%period < period/4 {
		return g.burst
	}
	return (4 - g.burst) / 3
}

// draft is what is said of an arrival.
type draft struct {
	at         time.Duration
	group, out int
	answer     string
	messages   []message
}

func (g *generator) add(d draft) {
	if d.at < 0 || d.at >= g.end {
		return
	}
	var b strings.Builder
	for _, m := range d.messages {
		b.WriteString("<|" + m.Role + "|>" + m.Content)
	}
	b.WriteString("<|assistant|>")
	prompt := (b.Len() + charsPerToken - 1) / charsPerToken
	b.WriteString(d.answer)
	g.arrivals = append(g.arrivals, &arrival{
		at: d.at, group: d.group, messages: d.messages, stream: g.Float64() >= g.whole, prompt: prompt, out: d.out,
		chain: chain(b.String()), measured: d.at >= g.warm,
	})
}

// chain cuts a text into blocks as a model server would, whose tokens are not the picker's.
func chain(text string) []uint64 {
	const size, odd = blockTokens * charsPerToken, 1099511628211
	made, last := make([]uint64, 0, len(text)/size), uint64(0)
	for ; len(text) >= size; text = text[size:] {
		last = last*odd + xxhash.Sum64String(text[:size])*31
		made = append(made, last|1) // 0 stands for nothing
	}
	return made
}

// Prefixes are beginnings that requests share, each followed by a part of its own.
type Prefixes struct {
	Count  int
	Skew   float64 // 0 if all are equally popular, else the exponent of Zipf's law
	Tokens int     // of each
	Own    int     // tokens that follow, in the mean
	Answer int     // tokens, in the mean
}

// Workload returns requests that begin so.
func (p Prefixes) Workload(rate float64) Workload { return Workload{rate: rate, fill: p.fill} }

func (p Prefixes) fill(g *generator) {
	var prefixes []string
	upTo, sum := make([]float64, p.Count), 0.0
	for i := range p.Count {
		prefixes = append(prefixes, g.text(p.Tokens))
		sum += math.Pow(float64(i+1), -p.Skew)
		upTo[i] = sum
	}
	groups := g.Perm(p.Count) // the hottest must not be neighbours for a policy that counts
	g.poisson(g.rate, 0, func(at time.Duration) {
		i, _ := slices.BinarySearch(upTo, g.Float64()*sum)
		out := p.Answer/4 + g.IntN(p.Answer*3/2)
		g.add(draft{at: at, group: groups[i], out: out, answer: g.text(out), messages: []message{
			{"system", prefixes[i]}, {"user", g.text(p.Own/2 + g.IntN(p.Own))},
		}})
	})
}

// Conversations returns requests that repeat all that was said before. They come at fixed times, whatever the policy does.
func Conversations(rate float64) Workload { return Workload{rate: rate, fill: converse} }

func converse(g *generator) {
	const (
		meanTurns = 9
		gap       = 4 * time.Second
		perToken  = 15 * time.Millisecond // of an answer that somebody reads
	)
	var system []string
	for range 4 {
		system = append(system, g.text(512))
	}
	group := 0
	g.poisson(g.rate/meanTurns, -2*meanTurns*gap, func(at time.Duration) {
		group++
		said := []message{{"system", system[g.IntN(len(system))]}}
		for range 2 + g.IntN(2*meanTurns-3) {
			out := 64 + g.IntN(192)
			said = append(said, message{"user", g.text(g.pareto(50, 4000, 0.5))})
			answer := g.text(out)
			g.add(draft{at: at, group: group, out: out, answer: answer, messages: slices.Clone(said)})
			said = append(said, message{"assistant", answer})
			at += time.Duration(out)*perToken + time.Duration(g.ExpFloat64()*float64(gap)*0.6)
		}
	})
}

// Mixed returns prompts of 200 to 16 000 tokens with answers of 16 to 512, most of them short. One in four has a prefix
// that it shares.
func Mixed(rate float64) Workload { return Workload{rate: rate, fill: mix} }

func mix(g *generator) {
	var shared []string
	for range 16 {
		shared = append(shared, g.text(1024))
	}
	count := len(shared)
	g.poisson(g.rate, 0, func(at time.Duration) {
		count++
		group, said := count, []message{}
		if i := g.IntN(4 * len(shared)); i < len(shared) {
			group, said = i, append(said, message{"system", shared[i]})
		}
		out := g.pareto(16, 512, 0.6)
		said = append(said, message{"user", g.text(g.pareto(200, 16000, 0.7))})
		g.add(draft{at: at, group: group, out: out, answer: g.text(out), messages: said})
	})
}

// pareto draws from a heavy tail that is cut off.
func (g *generator) pareto(low, high, alpha float64) int {
	l, h := math.Pow(low, alpha), math.Pow(high, alpha)
	u := g.Float64()
	return int(math.Pow(-(u*h-u*l-h)/(h*l), -1/alpha))
}
