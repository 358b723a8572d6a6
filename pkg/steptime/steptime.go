// Package steptime computes the duration of a model server's steps. The emulated model server and the endpoint picker's
// simulation share it, so that both use the same laws.
//
// A step computes one token for each decoding sequence, and a part of some prompts. Memory and arithmetic take time:
//
//	memory     = Base + sequences × PerSeq + tokens in their KV cache × PerContext
//	arithmetic = prompt tokens × PerToken + pairs × PerMegaPair / 10⁶
//
// A pair is a prompt token and a token that it attends to: itself and all before it, so their number grows with the
// square of the prompt's length. A step takes the sum of both, or the larger one with Overlap, times a random factor.
package steptime

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// Law is the law of one model on one machine. A zero field other than Base disables its effect.
type Law struct {
	Base        time.Duration // of each step: read the weights, launch the kernels
	PerSeq      time.Duration // for each decoding sequence
	PerToken    time.Duration // for each prompt token
	PerContext  time.Duration // for each token in the KV cache of a decoding sequence
	PerMegaPair time.Duration // for a million pairs

	Table Table // measured times, in place of the first five

	Noise   float64 // standard deviation of the logarithm of the random factor
	Graphs  bool    // pad decoding sequences to the next batch size with a CUDA graph
	Overlap bool    // arithmetic and memory overlap
}

// Linear returns the law that the endpoint picker assumes, with numbers like those of Realistic for short requests.
func Linear() Law {
	return Law{Base: 6 * time.Millisecond, PerSeq: 150 * time.Microsecond, PerToken: 40 * time.Microsecond}
}

// Realistic returns the law of Llama 3.1 8B (32 layers, 4096 wide, 8 KV heads of 128, 16 bits) on an H100 (3.35 TB/s,
// 989 TFLOP/s of which prefill reaches 40 %):
//
//   - Base: 16.1 GB of weights take 4.8 ms to read, and 1.2 ms for launches and sampling.
//   - PerToken: 2 × 8.03·10⁹ operations take 41 µs.
//   - PerContext: 2 × 32 × 8 × 128 × 2 bytes = 131 kB take 39 ns to read. A full cache of 65 536 tokens takes 2.6 ms.
//   - PerMegaPair: 4 × 4096 × 32 operations a pair take 1.32 ns. A prompt of 16 384 tokens takes 27 % longer for it.
//   - Noise: steps of the same batch vary by some percent. This one is a guess, as are the 150 µs of PerSeq.
func Realistic() Law {
	law := Linear()
	law.PerContext, law.PerMegaPair = 39*time.Nanosecond, 1320*time.Microsecond
	law.Noise, law.Graphs = 0.05, true
	return law
}

// Validate returns an error for an impossible law.
func (l Law) Validate() error {
	if l.Noise < 0 {
		return errors.New("the noise of a step must not be negative")
	}
	if len(l.Table) > 0 {
		return l.Table.Validate()
	}
	if l.Base <= 0 {
		return errors.New("the base time of a step must be positive")
	}
	if min(l.PerSeq, l.PerToken, l.PerContext, l.PerMegaPair) < 0 {
		return errors.New("times of a step must not be negative")
	}
	return nil
}

// Step is the work of one step.
type Step struct {
	Sequences int // decoding ones
	Context   int // tokens in their KV cache
	Prompt    int // tokens of prompts
	Pairs     int // of these and the tokens that they attend to
}

// Decode adds a decoding sequence with a number of tokens in its KV cache.
func (s *Step) Decode(context int) {
	s.Sequences++
	s.Context += context
}

// Prefill adds the next tokens of a prompt, after a number of cached ones.
func (s *Step) Prefill(cached, tokens int) {
	s.Prompt += tokens
	s.Pairs += tokens*cached + tokens*(tokens+1)/2
}

// Time returns the time of a step without noise.
func (l Law) Time(s Step) time.Duration {
	if len(l.Table) > 0 {
		return l.Table.stepTime(&s)
	}
	sequences := s.Sequences
	if l.Graphs {
		sequences = paddedBatch(sequences)
	}
	memory := l.Base + time.Duration(sequences)*l.PerSeq + time.Duration(s.Context)*l.PerContext
	arithmetic := time.Duration(s.Prompt)*l.PerToken + time.Duration(float64(s.Pairs)/1e6*float64(l.PerMegaPair))
	if l.Overlap {
		return max(memory, arithmetic)
	}
	return memory + arithmetic
}

// Vary returns a factor with the mean 1 that a step's time is multiplied by.
func (l Law) Vary(r *rand.Rand) float64 {
	if l.Noise == 0 {
		return 1
	}
	return math.Exp(l.Noise*r.NormFloat64() - l.Noise*l.Noise/2)
}

// paddedBatch returns the batch size of the CUDA graph for a number of sequences. vLLM captures graphs for 1, 2 and 4 sequences,
// then for multiples of 8, and runs more than largest without.
func paddedBatch(sequences int) int {
	const largest = 512
	switch {
	case sequences <= 2 || sequences > largest:
		return sequences
	case sequences <= 4:
		return 4
	default:
		return (sequences + 7) / 8 * 8
	}
}
