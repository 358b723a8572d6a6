package engine

import (
	"time"

	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
)

// FinishReason is the reason why a request ended, with the names of OpenAI and vLLM.
type FinishReason string

const (
	ReasonStop   FinishReason = "stop"   // the model ended its answer
	ReasonLength FinishReason = "length" // the answer reached the requested limit
	ReasonAbort  FinishReason = "abort"  // the client disconnected
)

// Params are the parameters of a request.
type Params struct {
	Prompt  []uint32     // not empty
	Output  []uint32     // the tokens of the answer, not empty
	Reason  FinishReason // after the last token of Output
	Adapter string       // LoRA adapter; empty for the base model
	Salt    string       // separates the cached prompts of different tenants

	MaxTokens int // limit that the client has set, or 0
	Choices   int // number of answers that the client requested

	// The engine calls Notify, while it is locked, after each change of Progress. Notify must not block.
	Notify func()
}

// Request is one sequence in the engine. After Submit, its fields belong to the engine.
type Request struct {
	Params

	chain []uint64 // hashes of the full blocks of prompt and answer, each covering all before it
	held  []int32  // blocks, in order

	computed  int // tokens whose keys and values are in the held blocks
	made      int // tokens of the answer
	scheduled int // tokens of the current step
	published int // held blocks that other requests can find
	cached    int // prompt tokens found in the cache when the request first ran

	preemptions int

	arrived    time.Duration
	begun      bool          // was scheduled at least once
	started    time.Duration // start of its first step
	tokenTimes []time.Duration
	ended      bool
	reason     FinishReason
}

// Progress is the progress of a request.
type Progress struct {
	Made   int             // tokens of the answer
	Times  []time.Duration // of each of them, since the request arrived
	Cached int             // prompt tokens that came from the cache
	Ended  bool
	Reason FinishReason // if Ended
}

// NewRequest returns a request for an engine with blocks of blockSize tokens.
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

// known returns the number of tokens of the prompt and of the answer so far.
func (r *Request) known() int { return len(r.Prompt) + r.made }

// decoding reports whether the current step only decodes the next token, because the KV cache has all tokens before the last one.
func (r *Request) decoding() bool { return r.made > 0 && r.known()-r.computed == 1 }

// cacheable returns the hashes of the blocks that may come from the cache. They never contain the last token, because a step must
// compute it to get the next token.
func (r *Request) cacheable(blockSize int) []uint64 { return r.chain[:(r.known()-1)/blockSize] }

func (r *Request) progress() Progress {
	return Progress{Made: r.made, Times: r.tokenTimes, Cached: r.cached, Ended: r.ended, Reason: r.reason}
}

func (r *Request) notify() {
	if r.Notify != nil {
		r.Notify()
	}
}
