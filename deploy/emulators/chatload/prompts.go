package chatload

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// charsPerToken is the number of characters of a token. It is exact for a model server with the plain profile; the tokens of a
// real tokenizer have slightly more characters of prose.
const charsPerToken = 4

// Prompts describe conversations of a system message, which all requests of a group share, and a user message, which is different
// in each request. The seed and the number of a request determine its group and its text.
type Prompts struct {
	Groups       int // 0: one
	SharedTokens int // of the system message; 0: no system message
	OwnTokens    int // of the user message; 0: 32
	Seed         uint64
}

const defaultOwnTokens = 32

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (p *Prompts) validate() error {
	if p.Groups < 0 || p.SharedTokens < 0 || p.OwnTokens < 0 {
		return fmt.Errorf("groups and tokens must not be negative, got %d, %d and %d", p.Groups, p.SharedTokens, p.OwnTokens)
	}
	return nil
}

// Group returns the group of request number i.
func (p *Prompts) Group(i int) int {
	return p.request(i).IntN(max(p.Groups, 1))
}

// messages returns the conversation of request number i.
func (p *Prompts) messages(i int) []message {
	r := p.request(i)
	group := r.IntN(max(p.Groups, 1))
	own := p.OwnTokens
	if own == 0 {
		own = defaultOwnTokens
	}
	user := message{"user", prose(r, own*charsPerToken)}
	if p.SharedTokens == 0 {
		return []message{user}
	}
	shared := prose(rand.New(rand.NewPCG(p.Seed, ^uint64(group))), p.SharedTokens*charsPerToken)
	return []message{{"system", shared}, user}
}

func (p *Prompts) request(i int) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, uint64(i))) }

// prose returns n characters of common English words. A real tokenizer would need twice as many tokens for made-up words.
func prose(r *rand.Rand, n int) string {
	words := strings.Fields(`a about after all and any are as at back be because but by can could day do even first for from get give go
		good have he her him his how I if in into is it its just know like look make many me most my new no not now of on one only or
		other our out over people say see she so some take than that the their them then there these they thing think this time to two
		up use want way we well what when which who will with work would year you your available business community company country
		development different education example experience government history however important including information interest
		international market
		minutes morning national necessary nothing number office people perhaps personal policy position possible problem process program
		public question really reason research results school service several situation social something special students support system
		together towards understand university usually without working`)
	var b strings.Builder
	b.Grow(n + 16)
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteString([]string{" ", " ", " ", " ", " ", ", ", ". ", "\n"}[r.IntN(8)])
	}
	return b.String()[:n]
}
