package request

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/answer"
)

// form is the format of an API's bodies.
type form uint8

const (
	formJSON   form = iota // an object; fields with the same name mean the same in all APIs
	formVLLM               // a framed GenerateRequest or EmbedRequest of vLLM's gRPC service
	formOpaque             // ignored
)

// An API contains the properties of requests to the paths with one suffix.
type API struct {
	suffix    string
	form      form
	needModel bool // of the object; requests without a model cannot be served
	// Generates means that the model computes the prompt, and so has it in its cache afterwards.
	Generates bool
	// Usage is the format of usage in answers.
	Usage answer.Form
}

// APIs without a parser.
var (
	unknown  = &API{form: formOpaque, Generates: true} // for unclaimed paths, and unreadable bodies
	bodiless = &API{form: formOpaque}                  // for requests without a body
	pathless = &API{Generates: true}                   // for gateways that do not send paths
)

// parsers contains the APIs by the names of their parsers in upstream's configuration.
var parsers = map[string][]API{
	ParserOpenAI: {
		{suffix: "/completions", needModel: true, Generates: true}, // also chat completions
		{suffix: "/embeddings", needModel: true, Generates: true},
		{suffix: "/responses", needModel: true, Generates: true},
		{suffix: "/images/generations", needModel: true, Generates: true},
		{suffix: "/completions/render", needModel: true},
		{suffix: "/conversations"},
	},
	ParserAnthropic: {
		{suffix: "/v1/messages", needModel: true, Generates: true},
		{suffix: "/v1/messages/count_tokens", needModel: true},
	},
	ParserVLLM: {
		{suffix: "/inference/v1/generate", Generates: true},
	},
	ParserVLLMGRPC: {
		{suffix: "/vllm.grpc.engine.VllmEngine/Generate", form: formVLLM, Generates: true, Usage: answer.FormVLLM},
		{suffix: "/vllm.grpc.engine.VllmEngine/Embed", form: formVLLM, Generates: true, Usage: answer.FormVLLM},
	},
	ParserSGLang: {
		{suffix: "/generate", Generates: true, Usage: answer.FormMetaInfo},
	},
	ParserPassthrough: nil,
}

// Names of parsers.
const (
	ParserOpenAI      = "openai-parser"
	ParserAnthropic   = "anthropic-parser"
	ParserVLLM        = "vllmhttp-parser"
	ParserVLLMGRPC    = "vllmgrpc-parser"
	ParserSGLang      = "sglanghttp-parser"
	ParserPassthrough = "passthrough-parser"
)

// AllParsers returns the names of all parsers.
func AllParsers() []string {
	return []string{ParserOpenAI, ParserAnthropic, ParserVLLM, ParserVLLMGRPC, ParserSGLang, ParserPassthrough}
}

var errNoParser = errors.New("no parser for its path")

// Parsers maps paths to APIs. They are never changed.
type Parsers struct {
	names  []string
	apis   []*API // longest suffix first
	others bool   // accept paths without a parser
}

// NewParsers returns the parsers with the given names. Without the passthrough parser, bodies of other paths are refused.
func NewParsers(names ...string) (*Parsers, error) {
	p := &Parsers{names: slices.Clone(names)}
	for _, name := range names {
		apis, ok := parsers[name]
		if !ok {
			return nil, fmt.Errorf("parser %q is not one of %s", name, strings.Join(AllParsers(), ", "))
		}
		p.others = p.others || name == ParserPassthrough
		for i := range apis {
			p.apis = append(p.apis, &apis[i])
		}
	}
	slices.SortStableFunc(p.apis, func(a, b *API) int { return len(b.suffix) - len(a.suffix) })
	return p, nil
}

// Names returns the names of the parsers.
func (p *Parsers) Names() []string { return slices.Clone(p.names) }

// find returns the API of a path, or nil if its bodies are refused.
func (p *Parsers) find(path string) *API {
	path, _, _ = strings.Cut(path, "?")
	for _, api := range p.apis {
		if strings.HasSuffix(path, api.suffix) {
			return api
		}
	}
	if p.others {
		return unknown
	}
	return nil
}

// Parse reads the body of a request in the format of its path.
func (r *Request) Parse(p *Parsers, in Incoming) error {
	r.Reset(in.Body)
	if r.API = bodiless; len(in.Body) == 0 {
		return nil
	}
	path := in.Path
	if path == "" {
		path = in.Headers.First(headerOriginalPath, headerForwardedPath)
	}
	switch r.API = p.find(path); {
	case path == "" && in.Body[0] == '{': // NGINX Gateway Fabric
		r.API = pathless
	case path == "":
		r.API = unknown
	case r.API == nil:
		return fmt.Errorf("%w: %w", ErrMalformed, errNoParser)
	}
	if err := r.read(); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

func (r *Request) read() error {
	switch r.API.form {
	case formOpaque:
		return nil
	case formVLLM:
		return r.readVLLM()
	case formJSON:
	}
	if err := r.readJSON(); err != nil {
		return err
	}
	if r.API.needModel && r.Model.From == r.Model.To {
		return errNoModel
	}
	return nil
}
