package api

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
	"fairlead.dev/pkg/wake"
)

const (
	// openEndedTokens is the length of an answer that neither the client nor the server limits.
	openEndedTokens = 256
	maxChoices      = 128
)

// errCut ends an answer with the fault half, drop or stall.
var errCut = errors.New("a fault cut the answer")

// A generation is one HTTP request in the engine, with one sequence for each requested answer.
type generation struct {
	dialect dialect
	id      string
	model   string
	created time.Time
	options common

	verdict faults.Verdict
	choices []*choice
	emitted int         // tokens sent to the client, of all choices
	changed wake.Signal // of possible progress
	habits  *Habits
}

type choice struct {
	index   int
	request *engine.Request
	sent    int // tokens sent to the client
	cached  int // prompt tokens from the cache; valid after the first sent token
}

// newGeneration returns the generation of a request. maxTokens is the limit that the client has set, or nil.
func (s *Server) newGeneration(d dialect, options common, prompts [][]uint32, maxTokens *int) (*generation, error) {
	g := &generation{
		dialect: d, model: *options.Model, created: time.Now(), options: options,
		verdict: faults.Verdict{Stretch: 1}, changed: wake.NewSignal(),
		habits: &s.Habits,
	}
	n := 1
	if options.N != nil {
		n = *options.N
	}
	if n < 1 || n*len(prompts) > maxChoices {
		return nil, badRequest("n", "n must be at least 1 and make at most %d answers, got %d.", maxChoices, n)
	}
	for _, prompt := range prompts {
		for range n {
			request, err := s.newRequest(g, prompt, maxTokens)
			if err != nil {
				return nil, err
			}
			g.choices = append(g.choices, &choice{index: len(g.choices), request: request})
		}
	}
	return g, nil
}

func (s *Server) newRequest(g *generation, prompt []uint32, maxTokens *int) (*engine.Request, error) {
	limit, err := s.answerLimit(len(prompt), g.options.MinTokens, maxTokens)
	if err != nil {
		return nil, err
	}
	seed := tokens.Hash(s.Seed, prompt) + uint64(len(g.choices))
	if g.options.Seed != nil {
		seed = tokens.Hash(seed, []uint32{uint32(*g.options.Seed), uint32(*g.options.Seed >> 32)})
	}
	length, reason := limit, engine.ReasonLength
	if natural, ends := s.naturalLength(seed, maxTokens != nil); ends && !g.options.IgnoreEOS {
		if natural = max(natural, g.options.MinTokens); natural < limit {
			length, reason = natural, engine.ReasonStop
		}
	}
	p := engine.Params{
		Prompt: prompt, Output: s.Tokenizer.Generate(seed, length), Reason: reason, Salt: g.options.CacheSalt,
		Choices: 1, Notify: g.changed.Send,
	}
	if g.options.N != nil {
		p.Choices = *g.options.N
	}
	if maxTokens != nil {
		p.MaxTokens = *maxTokens
	}
	if slices.Contains(s.Adapters, g.model) {
		p.Adapter = g.model
	}
	return engine.NewRequest(p, s.Spec.BlockSize), nil
}

// answerLimit returns the maximum length of an answer: the limit of the client, or else of the model.
func (s *Server) answerLimit(prompt, minTokens int, maxTokens *int) (int, error) {
	room := s.Spec.MaxModelLen - prompt
	if room < 1 {
		return 0, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your request has %d input tokens. "+
			"Please reduce the length of the input messages.", s.Spec.MaxModelLen, prompt)
	}
	limit := room
	if maxTokens != nil {
		limit = *maxTokens
	}
	switch {
	case limit < 1:
		return 0, badRequest("max_tokens", "max_tokens must be at least 1, got %d.", limit)
	case limit > room:
		return 0, badRequest("input_tokens", "This model's maximum context length is %d tokens. However, you requested %d output tokens "+
			"and your prompt contains %d input tokens, for a total of %d tokens. Please reduce the length of the input prompt or the "+
			"number of requested output tokens.", s.Spec.MaxModelLen, limit, prompt, prompt+limit)
	case minTokens < 0:
		return 0, badRequest("min_tokens", "min_tokens must be greater than or equal to 0, got %d.", minTokens)
	case minTokens > limit:
		return 0, badRequest("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d.", limit, minTokens)
	}
	return limit, nil
}

// naturalLength returns the length of an answer that ends with stop, or false if only its limit ends the answer.
func (s *Server) naturalLength(seed uint64, limited bool) (int, bool) {
	if s.Output != (tokens.Lengths{}) {
		return s.Output.Draw(seed), true
	}
	return openEndedTokens, !limited
}

// run runs the generation in the engine. After each change it calls onTokens for each choice with new tokens, and then onRound. It
// returns after the last token, or with an error if the client has disconnected or a fault cuts the answer. In all
// cases the requests have left the engine when run returns.
func (s *Server) run(ctx context.Context, g *generation, onTokens func(c *choice, from, to int), onRound func() error) error {
	defer s.abort(g)
	for _, c := range g.choices {
		if err := s.Driver.Submit(c.request); err != nil {
			return fmt.Errorf("submit request: %w", err)
		}
	}
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.loop.pass() // collect also returns the tokens that the engine makes meanwhile
		done, next := s.collect(g, time.Since(start), onTokens)
		if err := onRound(); err != nil {
			return err
		}
		if f := g.verdict.Fault; f.Cuts() && g.emitted >= f.Tokens {
			return s.cut(ctx, f)
		}
		if done {
			return nil
		}
		next = g.wake(next, time.Since(start))
		due := timer.C
		if next > 0 {
			timer.Reset(time.Until(start.Add(next)))
		} else {
			due = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.changed:
		case <-due:
		}
	}
}

// cut ends an answer in the middle, or stalls before.
func (s *Server) cut(ctx context.Context, f faults.Fault) error {
	if f.Name == faults.Stall {
		s.stall(ctx)
	}
	return errCut
}

// wake returns when something is due after the elapsed time since the start, 0 for nothing: the next token, or a comment before the first
// one.
func (g *generation) wake(token, elapsed time.Duration) time.Duration {
	quiet := g.habits.KeepAliveInterval
	if quiet == 0 || g.emitted > 0 {
		return token
	}
	if at := elapsed.Truncate(quiet) + quiet; token == 0 || at < token {
		return at
	}
	return token
}

// collect passes the tokens that are visible after the elapsed time since the start to onTokens. It reports whether these tokens
// were the last ones, and returns the time at which the next existing token becomes visible, or 0.
func (s *Server) collect(g *generation, elapsed time.Duration, onTokens func(c *choice, from, to int)) (done bool, next time.Duration) {
	done = true
	for _, c := range g.choices {
		p := s.Driver.Progress(c.request)
		seen, later := g.visible(c, &p, elapsed)
		if later > 0 && (next == 0 || later < next) {
			next = later
		}
		if seen > c.sent {
			from := c.sent
			c.sent, c.cached = seen, p.Cached
			g.emitted += seen - from
			onTokens(c, from, seen)
		}
		done = done && p.Ended && seen == p.Made
	}
	return done, next
}

// visible returns the number of tokens of a choice that the client can see after the elapsed time since the start, and the time of
// the next token, if the engine has already made it.
func (g *generation) visible(c *choice, p *engine.Progress, elapsed time.Duration) (seen int, next time.Duration) {
	seen = c.sent
	for seen < p.Made && (g.verdict.Stretch == 1 || stretched(p.Times[seen], g) <= elapsed) {
		seen++
	}
	if seen < p.Made {
		next = stretched(p.Times[seen], g)
	}
	if c.sent > 0 && seen-c.sent < g.habits.StreamInterval && !p.Ended {
		seen = c.sent // the server sends the first token immediately, the others in groups of StreamInterval
	}
	if f := g.verdict.Fault; f.Cuts() {
		seen = min(seen, c.sent+max(0, f.Tokens-g.emitted))
	}
	return seen, next
}

func stretched(at time.Duration, g *generation) time.Duration {
	return time.Duration(float64(at) * g.verdict.Stretch)
}

// halved reports whether an answer must end as if it was whole.
func (g *generation) halved(err error) bool {
	return errors.Is(err, errCut) && g.verdict.Fault.Name == faults.Half
}

// abort ends the remaining requests in the engine.
func (s *Server) abort(g *generation) {
	for _, c := range g.choices {
		s.Driver.Abort(c.request)
	}
}

// usage returns the usage with the tokens sent so far.
func (g *generation) usage() *usage {
	u, cached := &usage{}, 0
	var last []uint32
	for _, c := range g.choices {
		// The answers to one prompt share it.
		if prompt := c.request.Prompt; last == nil || &last[0] != &prompt[0] {
			u.PromptTokens += len(prompt)
			cached += c.cached
			last = prompt
		}
		u.CompletionTokens += c.sent
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	if g.habits.PromptTokensDetails {
		u.Details = &usageDetails{CachedTokens: cached}
	}
	return u
}

// tokenIDs returns the ids if the client has requested them, else nil.
func (g *generation) tokenIDs(ids []uint32) []uint32 {
	if !g.options.ReturnIDs {
		return nil
	}
	return ids
}

// finishReason returns the finish reason of token number n of a choice, counted from 1. It is empty before the last token.
func (c *choice) finishReason(n int) string {
	if n < len(c.request.Output) {
		return ""
	}
	return string(c.request.Reason)
}

// newID returns the id of a request: the client's request id with a prefix, or a random one.
func newID(prefix, requestID string) string {
	if requestID == "" {
		requestID = fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	}
	return prefix + requestID
}
