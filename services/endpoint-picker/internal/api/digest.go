package api

import (
	"github.com/cespare/xxhash/v2"

	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// A Digest describes a prompt in place of a body: for senders that must not show prompts, or that have hashed them already.
type Digest struct {
	Model  string
	Salt   string // prompts with different salts share nothing
	Stream bool
	Tokens int      // of the prompt
	Blocks []uint64 // a hash for each whole block of the prompt. Equal hashes mean that all up to the end of the block is equal
	Size   int      // of a block, in blocks of prefixindex; at least 1
	Turns  Turns    // in blocks of the digest
}

// digested is the API of digests.
var digested = &API{Generates: true, Usage: FormatOpen}

// HashBlocks appends the blocks to a chain. It returns the turns in blocks of the chain.
func (d *Digest) HashBlocks(to *prefixindex.Chain) Turns {
	for _, hash := range d.Blocks {
		to.WriteHash(hash, d.Size)
	}
	at := func(blocks int) int { return min(blocks*d.Size, len(to.Hashes)) }
	return Turns{Opening: at(d.Turns.Opening), Asked: at(d.Turns.Asked), History: at(d.Turns.History)}
}

// ChainSeed returns the seed of the chain for a model. It differs from the seed for texts, whose hashes are made in another way.
func (d *Digest) ChainSeed(model string) uint64 {
	salt := uint64(0)
	if d.Salt != "" {
		salt = xxhash.Sum64String(d.Salt)
	}
	return prefixindex.SeedHashes(prefixindex.Seed(model, salt))
}
