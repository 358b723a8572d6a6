package engine

import (
	"errors"
	"fmt"
	"time"
)

// Spec is a model server's size and speed. Its fields are named after vLLM's options where it has them.
type Spec struct {
	MaxNumSeqs          int // requests running at once
	MaxNumBatchedTokens int // tokens of one step, decoding and prompt together
	NumBlocks           int // of KV cache
	BlockSize           int // tokens of one block
	MaxModelLen         int // tokens of one request, prompt and answer together
	MaxLoRAs            int // distinct adapters running at once

	StepBase        time.Duration // every step
	StepPerSeq      time.Duration // for each decoding request in a step
	PrefillPerToken time.Duration // for each uncached prompt token in a step
	Speed           float64       // divides all three
}

// Validate says what a server of this size could not run with.
func (s Spec) Validate() error {
	var errs []error
	positive := func(name string, v float64) {
		if v <= 0 {
			errs = append(errs, fmt.Errorf("%s must be positive, got %v", name, v))
		}
	}
	positive("max-num-seqs", float64(s.MaxNumSeqs))
	positive("max-num-batched-tokens", float64(s.MaxNumBatchedTokens))
	positive("num-gpu-blocks", float64(s.NumBlocks))
	positive("block-size", float64(s.BlockSize))
	positive("max-model-len", float64(s.MaxModelLen))
	positive("max-loras", float64(s.MaxLoRAs))
	positive("step-base", s.StepBase.Seconds())
	positive("speed", s.Speed)
	if s.StepPerSeq < 0 || s.PrefillPerToken < 0 {
		errs = append(errs, errors.New("step-per-seq and prefill-per-token must not be negative"))
	}
	if s.MaxNumBatchedTokens < s.MaxNumSeqs {
		errs = append(errs, fmt.Errorf("max-num-batched-tokens %d is below max-num-seqs %d", s.MaxNumBatchedTokens, s.MaxNumSeqs))
	}
	if capacity := s.NumBlocks * s.BlockSize; capacity < s.MaxModelLen {
		errs = append(errs, fmt.Errorf("max-model-len %d exceeds the KV cache of %d tokens", s.MaxModelLen, capacity))
	}
	return errors.Join(errs...)
}

// stepTime is how long a step takes that decodes for so many requests and reads so many prompt tokens.
func (s Spec) stepTime(decoding, promptTokens int, slowdown float64) time.Duration {
	d := s.StepBase + time.Duration(decoding)*s.StepPerSeq + time.Duration(promptTokens)*s.PrefillPerToken
	return max(1, time.Duration(float64(d)*slowdown/s.Speed))
}

func (s Spec) blocksFor(tokens int) int {
	return (tokens + s.BlockSize - 1) / s.BlockSize
}
