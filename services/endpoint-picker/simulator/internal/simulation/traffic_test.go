package simulation

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

// inBursts makes traffic come in bursts with a factor of its rate.
func (w Workload) inBursts(burst float64) Workload {
	w.burst = burst
	return w
}

// inOnePiece makes a share of the answers unstreamed.
func (w Workload) inOnePiece(part float64) Workload {
	w.unstreamedShare = part
	return w
}

// code is a source of texts beside prose.
var code = sync.OnceValue(func() string { return generateWords(6, " ", "(", ").", " = ", "\n\t", "[", "\"]", ", ", "->", "_") })

// textGenerator creates arrivals with texts.
type textGenerator struct {
	*generator
	*rand.Rand

	bytesPerToken float64 // of the text that is generated next
	scratch       []byte
	ends          []int
}

func newTextGenerator(g *generator) *textGenerator {
	return &textGenerator{generator: g, Rand: rand.New(rand.NewPCG(g.seed, 0)), bytesPerToken: charsPerToken}
}

// selectText selects the kind of the text that is generated next. It belongs to the text that requests share, so that equal text has equal
// tokens.
func (g *textGenerator) selectText(kind int) { g.bytesPerToken = g.bytesOf(kind) }

// generateText returns a piece of prose or code with a number of tokens, or with as many as the picker counts if tokens are words.
func (g *textGenerator) generateText(tokens int) string {
	const codePart = 0.25
	all := prose()
	if g.words && g.Float64() < codePart {
		all = code()
	}
	size := int(math.Round(float64(tokens) * g.bytesPerToken))
	from := g.IntN(len(all) - size)
	return all[from : from+size]
}

// poisson calls arrive at each arrival of a Poisson process. For a changing rate it uses the highest rate and skips some
// arrivals.
func (g *textGenerator) poisson(rate float64, from time.Duration, arrive func(at time.Duration)) {
	most := max(g.burst, 1)
	for t := from; ; {
		t += time.Duration(g.ExpFloat64() / (rate * most) * float64(time.Second))
		switch {
		case t >= g.end:
			return
		case most == 1 || g.Float64()*most < g.burstFactor(t):
			arrive(t)
		}
	}
}

// burstFactor returns the factor of the rate in a burst, or between two. The mean rate stays the same.
func (g *textGenerator) burstFactor(t time.Duration) float64 {
	const period = 4 * time.Second
	if t%period < period/4 {
		return g.burst
	}
	return (4 - g.burst) / 3
}

// draft contains the properties of an arrival.
type draft struct {
	at         time.Duration
	group, out int
	answer     string
	messages   []message
}

func (g *textGenerator) addDraft(d draft) {
	if d.at < 0 || d.at >= g.end {
		return
	}
	text := g.scratch[:0]
	for i := range d.messages {
		m := &d.messages[i]
		text = append(append(append(append(text, "<|"...), m.role...), "|>"...), m.text...)
	}
	text = append(text, "<|assistant|>"...)
	asked := len(text)
	text = append(text, d.answer...)
	g.scratch = text
	a := &arrival{
		at: d.at, group: d.group, messages: d.messages, stream: g.Float64() >= g.unstreamedShare,
		prompt: int(math.Ceil(float64(asked) / g.bytesPerToken)), out: d.out, blockTokens: g.blockTokens, measured: d.at >= g.warm,
	}
	if g.words {
		g.ends = appendWords(g.ends[:0], text[:asked], 0)
		a.prompt = len(g.ends)
		g.ends = appendWords(g.ends, text[asked:], asked)
		a.out = max(1, len(g.ends)-a.prompt)
	} else {
		g.ends = appendEven(g.ends[:0], text, g.bytesPerToken)
	}
	a.chain = g.numberBlocks(text, g.ends)
	g.arrivals = append(g.arrivals, a)
}

// numberBlocks divides a text into blocks like a model server, and numbers them. ends are the ends of the tokens.
func (g *textGenerator) numberBlocks(text []byte, ends []int) []int32 {
	const odd = 1099511628211
	numbers, last, from := make([]int32, 0, len(ends)/g.blockTokens), uint64(0), 0
	for ; len(ends) >= g.blockTokens; ends = ends[g.blockTokens:] {
		to := ends[g.blockTokens-1]
		last = last*odd + xxhash.Sum64(text[from:to])
		from = to
		numbers = append(numbers, g.contentNumber(last))
	}
	return numbers
}

// Prefixes are shared beginnings of requests, each followed by its own part.
type Prefixes struct {
	Count  int
	Skew   float64 // 0 if all are equally popular, else the exponent of Zipf's law
	Tokens int     // of each prefix
	Own    int     // mean number of tokens that follow
	Answer int     // mean number of tokens
}

// Workload returns requests with these prefixes.
func (p Prefixes) Workload(rate float64) Workload { return Workload{rate: rate, fill: p.fillPrefixes} }

func (p Prefixes) fillPrefixes(arrivals *generator) {
	g := newTextGenerator(arrivals)
	prefixes := make([]message, p.Count) // encoded when the first request has them: a workload without popular ones has few of many
	upTo, sum := make([]float64, p.Count), 0.0
	for i := range p.Count {
		g.selectText(i)
		prefixes[i].text = g.generateText(p.Tokens)
		sum += math.Pow(float64(i+1), -p.Skew)
		upTo[i] = sum
	}
	groups := g.Perm(p.Count) // the most popular must not be neighbors for a policy that counts
	g.poisson(g.rate, 0, func(at time.Duration) {
		i, _ := slices.BinarySearch(upTo, g.Float64()*sum)
		if prefixes[i].json == nil {
			prefixes[i] = newMessage("system", prefixes[i].text)
		}
		g.selectText(i)
		out := p.Answer/4 + g.IntN(p.Answer*3/2)
		g.addDraft(draft{at: at, group: groups[i], out: out, answer: g.generateText(out), messages: []message{
			prefixes[i], newMessage("user", g.generateText(p.Own/2+g.IntN(p.Own))),
		}})
	})
}

// Conversations returns requests that repeat the previous conversation. They arrive at fixed times, independent of the
// policy.
func Conversations(rate float64) Workload { return Workload{rate: rate, fill: fillConversations} }

func fillConversations(arrivals *generator) {
	g := newTextGenerator(arrivals)
	const (
		meanTurns = 9
		gap       = 4 * time.Second
		perToken  = 15 * time.Millisecond // of an answer that a person reads
	)
	var system []message
	for i := range 4 {
		g.selectText(i)
		system = append(system, newMessage("system", g.generateText(512)))
	}
	group := 0
	g.poisson(g.rate/meanTurns, -2*meanTurns*gap, func(at time.Duration) {
		group++
		kind := g.IntN(len(system))
		g.selectText(kind)
		said := []message{system[kind]}
		for range 2 + g.IntN(2*meanTurns-3) {
			out := 64 + g.IntN(192)
			said = append(said, newMessage("user", g.generateText(g.pareto(50, 4000, 0.5))))
			answer := g.generateText(out)
			g.addDraft(draft{at: at, group: group, out: out, answer: answer, messages: slices.Clone(said)})
			said = append(said, newMessage("assistant", answer))
			at += time.Duration(out)*perToken + time.Duration(g.ExpFloat64()*float64(gap)*0.6)
		}
	})
}

// Mixed returns prompts of 200 to 16 000 tokens with answers of 16 to 512, most of them short. One in four has a shared
// prefix.
func Mixed(rate float64) Workload { return Workload{rate: rate, fill: fillMixed} }

func fillMixed(arrivals *generator) {
	g := newTextGenerator(arrivals)
	var shared []message
	for i := range 16 {
		g.selectText(i)
		shared = append(shared, newMessage("system", g.generateText(1024)))
	}
	count := len(shared)
	g.poisson(g.rate, 0, func(at time.Duration) {
		count++
		group, said := count, []message{}
		if i := g.IntN(4 * len(shared)); i < len(shared) {
			group, said = i, append(said, shared[i])
		}
		g.selectText(group)
		out := g.pareto(16, 512, 0.6)
		said = append(said, newMessage("user", g.generateText(g.pareto(200, 16000, 0.7))))
		g.addDraft(draft{at: at, group: group, out: out, answer: g.generateText(out), messages: said})
	})
}

// pareto draws from a truncated heavy tail.
func (g *textGenerator) pareto(low, high, alpha float64) int {
	l, h := math.Pow(low, alpha), math.Pow(high, alpha)
	u := g.Float64()
	return int(math.Pow(-(u*h-u*l-h)/(h*l), -1/alpha))
}
