package engine

import (
	"errors"
	"fmt"

	"fairlead.dev/pkg/steptime"
)

// Spec is a model server's size and speed. The fields have the names of vLLM's options, if these exist.
type Spec struct {
	MaxNumSeqs          int // limit of running requests
	MaxNumBatchedTokens int // limit of tokens of one step, decode and prefill together
	NumBlocks           int // of the KV cache
	BlockSize           int // tokens of one block
	MaxModelLen         int // limit of tokens of one request, prompt and answer together
	MaxLoRAs            int // limit of distinct adapters of running requests

	Law   steptime.Law // time of a step
	Speed float64      // divisor of the time of a step
	Seed  uint64       // of the law's noise

	// StaleGauges makes Stats return the Gauges of the end of the last step, without the requests that arrived since.
	StaleGauges bool
}

// Validate returns an error with all invalid values.
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
	positive("speed", s.Speed)
	errs = append(errs, s.Law.Validate())
	if s.MaxNumBatchedTokens < s.MaxNumSeqs {
		errs = append(errs, fmt.Errorf("max-num-batched-tokens %d is below max-num-seqs %d", s.MaxNumBatchedTokens, s.MaxNumSeqs))
	}
	if capacity := s.NumBlocks * s.BlockSize; capacity < s.MaxModelLen {
		errs = append(errs, fmt.Errorf("max-model-len %d exceeds the KV cache of %d tokens", s.MaxModelLen, capacity))
	}
	return errors.Join(errs...)
}

func (s Spec) blocksFor(tokens int) int {
	return (tokens + s.BlockSize - 1) / s.BlockSize
}
