package request

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/answer"
)

// form is what the bodies of an API are.
type form uint8

const (
	formJSON   form = iota // an object; fields of one name mean one thing in all APIs
	formVLLM               // a framed GenerateRequest or EmbedRequest of vLLM's gRPC service
	formOpaque             // it does not matter
)

// An API is what is known of the requests to the paths with one end.
type API struct {
	suffix    string
	form      form
	needModel bool // of the object; without one nothing can be served
	// Generates says that the model runs: it computes the prompt, and so has it in its cache afterwards.
	Generates bool
	// Usage is how answers say their usage.
	Usage answer.Form
}

// APIs of no parser.
var (
	unknown  = &API{form: formOpaque, Generates: true} // of paths that nobody claims, and of bodies that cannot be read
	bodiless = &API{form: formOpaque}                  // of requests that are headers only
	pathless = &API{Generates: true}                   // of gateways that do not show paths
)

// parsers are the APIs by the names of the parsers that upstream's configuration has for them.
var parsers = map[string][]API{
	ParserOpenAI: {
		{suffix: "/completions", needModel: true, Generates: true}, // chat completions too
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

// AllParsers are the names of all parsers.
func AllParsers() []string {
	return []string{ParserOpenAI, ParserAnthropic, ParserVLLM, ParserVLLMGRPC, ParserSGLang, ParserPassthrough}
}

var errNoParser = errors.New("no parser for its path")

// Parsers say which API a path belongs to. They are never changed.
type Parsers struct {
	names  []string
	apis   []*API // the longest suffix first
	others bool   // paths that nobody claims are let through
}

// NewParsers returns those of that names. Without the passthrough parser bodies of other paths are refused.
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

// Names returns what the parsers are called.
func (p *Parsers) Names() []string { return slices.Clone(p.names) }

// find returns the API of a path, nil if bodies of it are refused.
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

// Parse takes a request and reads its body as its path says.
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
