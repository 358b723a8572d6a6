package pick

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const (
	// maxBlocks is the default limit on the part of a prompt to look up in caches.
	maxBlocks = prefixindex.DefaultMatchTokens / prefixindex.BlockTokens
	// mediaBlocks is the part of a prompt to look up even if its body has less text than that, because an image of a few bytes counts as
	// hundreds of tokens (guarded): 64 KiB of hashes.
	mediaBlocks = (128 << 10) / prefixindex.BlockTokens
	// beginningBlocks is the part of a prompt that identifies its kind: 128 tokens. Later tokens may differ between requests
	// of the same kind.
	beginningBlocks = 8
)

// parseRequest parses the request and a number of blocks of its prompt. A request of an unknown API has no prompt.
func (p *pickState) parseRequest(blocks int) error {
	r, result := &p.incoming, &p.result
	if err := r.ParseIncoming(p.config.Parsers, p.input.Incoming, blocks*prefixindex.BlockTokens); err != nil {
		return err
	}
	result.Model, result.Streaming, result.UsageFormat = r.Model, r.Stream, r.API.Usage
	result.Generates, result.Inference = r.API.Generates, r.IsInference()
	return nil
}

// countTokens estimates the tokens of the prompt for the target model.
func (p *pickState) countTokens() {
	r, result := &p.incoming, &p.result
	if !r.API.Generates {
		p.prompt.Size = estimate.PromptSize{}
		return
	}
	if p.claimed = p.input.Blind; p.claimed {
		r.Tokens = p.balancer.promptClaims.limitTokens(r.Tokens, len(p.input.Incoming.Body))
	}
	p.prompt.Size = estimate.PromptSize{Model: result.Target, Text: r.Text, Other: r.Tokens - r.Text}
	p.subject = prefixindex.Seed(result.Target, r.PathHash)
	result.PromptTokens, result.FixedTokens = p.balancer.params.Estimator.Measure(&p.prompt.Size), r.Tokens
}

// hashedTokens returns the number of prompt tokens to hash; 0 is the default. Without estimates only the beginning counts.
func hashedTokens(c *pluginconfig.Config) int {
	if c.Profile.WithoutEstimates {
		return beginningBlocks * prefixindex.BlockTokens
	}
	return c.Prefix.MaxTokens
}

// lookupBlocks returns the maximum number of blocks of a prompt to look up in caches. 0 tokens mean the default.
func lookupBlocks(maxTokens int) int {
	if maxTokens > 0 {
		return maxTokens / prefixindex.BlockTokens
	}
	return maxBlocks
}

// promptBlocks returns the maximum number of blocks of a prompt to read. A record has as many as the default, whatever is looked up.
func (b *Balancer) promptBlocks(maxTokens int) int {
	if b.params.Options.Prefixes {
		return max(lookupBlocks(maxTokens), maxBlocks)
	}
	return lookupBlocks(maxTokens)
}

// hashPrompt divides the prompt into blocks and hashes them.
func (p *pickState) hashPrompt(maxTokens int) {
	r, in, target, blocks := &p.incoming, &p.input.Incoming, p.result.Target, p.balancer.promptBlocks(maxTokens)
	if p.result.PromptTokens == 0 {
		blocks = 0
	}
	p.turns = api.Turns{}
	if d := in.Digest; d != nil {
		p.chain.Reset(d.ChainSeed(target), blocks)
		p.turns = d.HashBlocks(&p.chain)
		p.truncateBlocks(r.Tokens / prefixindex.BlockTokens)
		return
	}
	blocks = min(blocks, max(prefixindex.BlocksOf(len(in.Body)), mediaBlocks))
	p.chain.Reset(prefixindex.Seed(target, r.Salt), blocks)
	if blocks == 0 {
		return
	}
	for _, part := range r.Head {
		p.writePart(in.Body, part)
	}
	p.markTurn(0, r.Turns)
	for i, part := range r.Prompt {
		p.writePart(in.Body, part)
		p.markTurn(i+1, r.Turns)
	}
	if p.balancer.params.Options.Prefixes {
		p.result.Prefixes = appendPrefixes(nil, &p.chain, p.result.FixedTokens)
		p.truncateBlocks(lookupBlocks(maxTokens))
	}
	p.prompt.Size.ChainComplete = r.OnePrompt() && len(p.chain.Hashes) < lookupBlocks(maxTokens)
}

// truncateBlocks discards all blocks after a number of blocks.
func (p *pickState) truncateBlocks(blocks int) {
	p.chain.Truncate(blocks)
	p.turns = api.Turns{Opening: min(p.turns.Opening, blocks), Asked: min(p.turns.Asked, blocks), History: min(p.turns.History, blocks)}
}

// prefixBlocks is the number of blocks of one prefix in a record.
const prefixBlocks = request.PrefixTokens / prefixindex.BlockTokens

// appendPrefixes appends the hashes of a prompt's prefixes: at most 1025, or eight kilobytes.
func appendPrefixes(to []uint64, c *prefixindex.Chain, tokens int) []uint64 {
	count := min(len(c.Hashes), maxBlocks, tokens/prefixindex.BlockTokens) / prefixBlocks
	to = slices.Grow(to, count+1)
	for i := range count {
		to = append(to, c.Hashes[(i+1)*prefixBlocks-1])
	}
	if sum, covered := c.Sum(); covered >= tokens && request.PrefixCount(tokens) == count+1 {
		to = append(to, sum)
	}
	return to
}

// writePart appends a part of the prompt to the chain.
func (p *pickState) writePart(body []byte, part api.Part) {
	content := body[part.From:part.To]
	switch part.Kind {
	case api.Text:
		if part.IsShortest() {
			p.chain.Write(content)
		} else {
			p.writeShort(content)
		}
	case api.Value:
		p.chain.WriteValue(part.Hash, int(part.Size))
	case api.IDs:
		p.chain.WriteIDs(content)
	case api.PackedIDs:
		p.chain.WritePacked(content)
	case api.Media:
		p.chain.WriteValue(part.Hash, int(part.Size)*prefixindex.BytesPerToken)
	}
}

// writeShort appends a text to the chain, in its shortest spelling.
func (p *pickState) writeShort(text []byte) {
	for piece := range api.Short(text, p.textBuffer[:0]) {
		p.chain.Write(piece)
	}
}

// markTurn records the length of the chain after a number of parts of the prompt.
func (p *pickState) markTurn(parts int, t api.Turns) {
	if t.History == 0 {
		return
	}
	blocks := len(p.chain.Hashes)
	if parts == t.Opening {
		p.turns.Opening = blocks
	}
	if parts == t.Asked {
		p.turns.Asked = blocks
	}
	if parts == t.History {
		p.turns.History = blocks
	}
}

// describeRequest provides the properties of the request to the scheduler.
func (p *pickState) describeRequest() {
	p.request = scheduling.Request{
		Now: p.input.ArrivalTime, Random: p.random, Subset: p.input.Subset, Headers: p.input.Incoming.Headers,
		Model: p.result.Target, Tokens: p.result.PromptTokens,
	}
	if n := min(len(p.chain.Hashes), beginningBlocks); n > 0 {
		p.request.Prefix = p.chain.Hashes[n-1]
	}
}

// lookupPrompt provides the prompt to the estimator.
func (p *pickState) lookupPrompt(x *estimate.Estimator, endpoints []*endpoint.Endpoint) {
	p.prompt.Chain, p.prompt.Tokens = &p.chain, p.request.Tokens
	if !p.estimated {
		p.prompt.SkipLookup()
		return
	}
	p.prompt.Conversation = estimate.Conversation{Opening: p.turns.Opening, Asked: p.turns.Asked, History: p.turns.History}
	x.Lookup(&p.prompt, endpoints, p.request.Now)
}
