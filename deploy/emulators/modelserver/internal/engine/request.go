package engine

import (
	"time"

	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
)

// FinishReason is why a request ended, as OpenAI and vLLM name it.
type FinishReason string

const (
	ReasonStop   FinishReason = "stop"   // the model ended its answer
	ReasonLength FinishReason = "length" // the answer reached the limit that was asked for
	ReasonAbort  FinishReason = "abort"  // the client went away
)

// Params are what a request asks of the engine.
type Params struct {
	Prompt  []uint32     // not empty
	Output  []uint32     // the tokens of the answer, not empty
	Reason  FinishReason // once all of Output is made
	Adapter string       // LoRA adapter; empty for the base model
	Salt    string       // keeps apart cached prompts of different tenants

	MaxTokens int // limit that the client gave, 0 for none
	Choices   int // answers that the client asked for

	// Notify is called, with the engine locked, after each change that Progress shows. It must not block.
	Notify func()
}

// Request is one sequence in the engine. Its fields belong to the engine once it is submitted.
type Request struct {
	Params

	chain []uint64 // hashes of the full blocks of prompt and answer, each covering all before it
	held  []int32  // blocks, in order

	computed  int // tokens whose keys and values are in the held blocks
	made      int // tokens of the answer
	scheduled int // tokens of the step under way
	published int // held blocks that others can find
	cached    int // prompt tokens found in the cache when the request first ran

	preemptions int

	arrived    time.Duration
	begun      bool          // it ran, if only for a step
	started    time.Duration // when it first ran
	tokenTimes []time.Duration
	ended      bool
	reason     FinishReason
}

// Progress is how far a request has come.
type Progress struct {
	Made   int             // tokens of the answer
	Times  []time.Duration // of each of them, since the request arrived
	Cached int             // prompt tokens that came from the cache
	Ended  bool
	Reason FinishReason // when ended
}

// NewRequest makes a request for an engine whose blocks hold blockSize tokens.
func NewRequest(p Params, blockSize int) *Request {
	all := make([]uint32, 0, len(p.Prompt)+len(p.Output))
	all = append(append(all, p.Prompt...), p.Output...)
	r := &Request{Params: p, chain: make([]uint64, len(all)/blockSize)}
	hash := tokens.HashText(tokens.HashText(0, p.Adapter), p.Salt)
	for i := range r.chain {
		hash = max(1, tokens.Hash(hash, all[i*blockSize:(i+1)*blockSize])) // 0 means no content
		r.chain[i] = hash
	}
	return r
}

// known is how many tokens exist: the prompt and what was made of the answer.
func (r *Request) known() int { return len(r.Prompt) + r.made }

// decoding reports whether the step under way makes the next token only, the prompt and the answer so far being in
// the cache.
func (r *Request) decoding() bool { return r.made > 0 && r.known()-r.computed == 1 }

// cacheable are the hashes of the blocks that may come from the cache: never all of the tokens, because the last one
// must be computed to get the next.
func (r *Request) cacheable(blockSize int) []uint64 { return r.chain[:(r.known()-1)/blockSize] }

func (r *Request) progress() Progress {
	return Progress{Made: r.made, Times: r.tokenTimes, Cached: r.cached, Ended: r.ended, Reason: r.reason}
}

func (r *Request) notify() {
	if r.Notify != nil {
		r.Notify()
	}
}
