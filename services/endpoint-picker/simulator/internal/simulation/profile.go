package simulation

import (
	_ "embed" // of the usual profile
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"fairlead.dev/pkg/steptime"
)

// maxSize limits the sizes in a profile, so that their products stay in range: more blocks than any machine has.
const maxSize = 1 << 30

// A Profile describes model servers: the law of their steps, their sizes, their tokenizer and their metrics pages.
type Profile struct {
	About   string   `json:"about"`
	Sources []string `json:"sources"` // of the numbers

	Law           ProfileLaw     `json:"law"`
	ChunkTokens   int            `json:"chunk_tokens"` // maximum of one step
	Slots         int            `json:"slots"`
	KVBlocks      int            `json:"kv_blocks"`
	BlockTokens   int            `json:"block_tokens"`
	BytesPerToken []float64      `json:"bytes_per_token"` // text of kind k has entry k modulo their number
	StepFactors   []float64      `json:"step_factors"`    // server i has entry i modulo their number
	Page          ProfilePage    `json:"page"`
	Faults        []ProfileFault `json:"page_faults"`
}

// ProfileLaw contains the numbers of a law, with the units in their names.
type ProfileLaw struct {
	Base       float64        `json:"base_ms"`
	PerSeq     float64        `json:"per_decoding_ms"`
	PerContext float64        `json:"per_context_token_us"`
	PerToken   float64        `json:"per_prompt_token_us"`
	PerPair    float64        `json:"per_prompt_pair_ns"`
	Table      steptime.Table `json:"table"` // in place of the first five
	Noise      float64        `json:"noise"`
	Extra      float64        `json:"first_token_extra_ms"` // from the end of a step to the arrival of its tokens
}

// ProfilePage is the behavior of metrics pages.
type ProfilePage struct {
	Names             string  `json:"names"`
	Refresh           float64 `json:"refresh_ms"`             // between two refreshes; 0: it is always current
	RefreshPerRequest float64 `json:"refresh_per_request_ms"` // longer by so much for each request
	Answer            float64 `json:"answer_ms"`              // before the answer to a scrape
	IdleClose         float64 `json:"idle_close_ms"`
}

// A ProfileFault makes the page of one server useless.
type ProfileFault struct {
	Server int       `json:"server"`
	Kind   PageFault `json:"kind"`
	After  float64   `json:"after_s"`
}

// UsualProfile is the profile of a model of 8 billion parameters on one H100.
//
//go:embed servers/8b-h100.json
var UsualProfile []byte

// ReadProfile reads a profile. What it lacks is that of a model of 8 billion parameters on one recent GPU.
func ReadProfile(from io.Reader) (*Profile, error) {
	p := &Profile{
		Law:         ProfileLaw{Base: 6, PerSeq: 0.15, PerToken: 40},
		ChunkTokens: 2048, Slots: 48, KVBlocks: 4096, BlockTokens: 16, BytesPerToken: []float64{charsPerToken}, StepFactors: []float64{1},
	}
	decoder := json.NewDecoder(from)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(p)
	if err == nil {
		err = p.validateProfile()
	}
	if err != nil {
		return nil, fmt.Errorf("read profile of servers: %w", err)
	}
	return p, nil
}

func (p *Profile) validateProfile() error {
	for i := range p.Faults {
		if f := &p.Faults[i]; !slices.Contains([]PageFault{Hangs, Fails, Idle, Frozen}, f.Kind) || f.Server < 0 || f.After < 0 {
			return fmt.Errorf("page_faults %d must have a server, the kind hangs, fails, idle or frozen, and after_s of 0 or more", i)
		}
	}
	switch {
	case min(p.ChunkTokens, p.Slots, p.KVBlocks, p.BlockTokens) < 1:
		return errors.New("chunk_tokens, slots, kv_blocks and block_tokens must be positive")
	case max(p.ChunkTokens, p.Slots, p.KVBlocks, p.BlockTokens) > maxSize:
		return fmt.Errorf("chunk_tokens, slots, kv_blocks and block_tokens must be at most %d", maxSize)
	case len(p.BytesPerToken) == 0 || slices.Min(p.BytesPerToken) < 1:
		return errors.New("bytes_per_token must have numbers of 1 or more")
	case len(p.StepFactors) == 0 || slices.Min(p.StepFactors) <= 0:
		return errors.New("step_factors must have positive numbers")
	case min(p.Law.Extra, p.Page.Refresh, p.Page.RefreshPerRequest, p.Page.Answer) < 0:
		return errors.New("times must not be negative")
	}
	return p.stepLaw().Validate()
}

func (p *Profile) stepLaw() steptime.Law {
	l := p.Law
	return steptime.Law{
		Base: toDuration(l.Base), PerSeq: toDuration(l.PerSeq), PerToken: toDuration(l.PerToken / 1e3),
		PerContext: toDuration(l.PerContext / 1e3), PerMegaPair: toDuration(l.PerPair),
		Noise: l.Noise, Table: l.Table,
	}
}

// toDuration returns a duration in milliseconds.
func toDuration(ms float64) time.Duration {
	return time.Duration(math.Round(ms * float64(time.Millisecond)))
}

// Engines returns the engines of a number of servers.
func (p *Profile) Engines(n int) []Engine {
	engines := make([]Engine, n)
	for i := range engines {
		engines[i] = Engine{
			Slots: p.Slots, Blocks: p.KVBlocks, BlockTokens: p.BlockTokens, Batch: p.ChunkTokens, Law: p.stepLaw(),
			Slowness: p.StepFactors[i%len(p.StepFactors)], Extra: toDuration(p.Law.Extra),
			PageDelay: toDuration(p.Page.Answer), Refresh: Refresh{Interval: toDuration(p.Page.Refresh),
				PerRequest: toDuration(p.Page.RefreshPerRequest)},
		}
	}
	for _, f := range p.Faults {
		if f.Server < n {
			engines[f.Server].Fault, engines[f.Server].FaultAfter = f.Kind, toDuration(f.After*1e3)
		}
	}
	return engines
}

// WithBytesPerToken returns the scenario with text of a tokenizer.
func (s Scenario) WithBytesPerToken(bytesPerToken []float64) Scenario {
	s.Workload.bytes = bytesPerToken
	return s
}

// Rate returns its requests per second.
func (s Scenario) Rate() float64 { return s.Workload.rate }
