package chatload

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// charsPerToken is what the emulated model server takes for a token.
const charsPerToken = 4

// Prompts are conversations of a system message, which all requests of a group share, and a user message of the
// request's own. Seed and number of a request decide its group and its text.
type Prompts struct {
	Groups       int // 0: one
	SharedTokens int // of the system message; 0: there is none
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

// Group returns which group request number i belongs to.
func (p *Prompts) Group(i int) int {
	return p.request(i).IntN(max(p.Groups, 1))
}

// messages is the conversation of request number i.
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

// prose makes n characters of words.
func prose(r *rand.Rand, n int) string {
	var b strings.Builder
	b.Grow(n + 16)
	for b.Len() < n {
		for range 2 + r.IntN(8) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		b.WriteString([]string{" ", " ", " ", " ", " ", ", ", ". ", "\n"}[r.IntN(8)])
	}
	return b.String()[:n]
}
