// Package api reads inference requests in the formats of several APIs: the requested model and the prompt.
//
// Parse reads a body once. It decodes the name of the model, and returns positions in the body for all else. A prompt is a
// list of parts, in the order in which model servers join them, so two bodies that begin with the same parts begin with the
// same tokens.
//
// Clients are not trusted: the cost of a body of any shape is proportional to its length, and its memory is bounded. Parts are
// collected up to a limit; the rest of the body is validated, and counted for the estimate of tokens.
package api

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
)

// Reasons why a request cannot be parsed.
var (
	// ErrMalformed means that the body does not have the format of its API.
	ErrMalformed = errors.New("parse request body")
	errNoParser  = errors.New("no parser for its path")
)

// An API contains the properties of requests to the paths with one suffix.
type API struct {
	suffix    string
	read      func(*Request) error // reads the body; nil if it is ignored
	fields    fields               // of the body, if it is a JSON object
	needModel bool                 // requests without a model cannot be served
	// Generates means that the model computes the prompt, and so has it in its cache afterwards.
	Generates bool
	// Usage is the format of usage in answers.
	Usage answer.Form
}

// APIs without a parser.
var (
	unknown  = &API{Generates: true} // for unclaimed paths, and unreadable bodies
	bodiless = &API{}                // for requests without a body
)

// pathless is for JSON objects from gateways that do not send paths. It has the prompts of all APIs: each API ignores the
// fields of the others, or has an object there, which is not a prompt (text and prompt of the responses API).
var pathless = &API{Generates: true, read: (*Request).readJSON, fields: fields{
	"model":        (*Request).readModel,
	"stream":       (*Request).readStream,
	"cache_salt":   (*Request).readCacheSalt,
	"extra_key":    (*Request).readCacheSalt,
	"tools":        (*Request).readTools,
	"system":       (*Request).readSystem,
	"instructions": (*Request).readSystem,
	"messages":     (*Request).readMessages,
	"input":        (*Request).readInput,
	"prompt":       (*Request).readPrompts,
	"text":         (*Request).readPrompts,
	"token_ids":    (*Request).readPrompts,
	"input_ids":    (*Request).readPrompts,
}}

// Names of parsers, in upstream's configuration.
const (
	ParserOpenAI      = "openai-parser"
	ParserAnthropic   = "anthropic-parser"
	ParserVLLM        = "vllmhttp-parser"
	ParserVLLMGRPC    = "vllmgrpc-parser"
	ParserSGLang      = "sglanghttp-parser"
	ParserPassthrough = "passthrough-parser"
)

// parsers contains the APIs by the names of their parsers.
var parsers = map[string][]API{
	ParserOpenAI:      openAI,
	ParserAnthropic:   anthropic,
	ParserVLLM:        vllm,
	ParserVLLMGRPC:    vllmGRPC,
	ParserSGLang:      sglang,
	ParserPassthrough: nil,
}

// AllParsers returns the names of all parsers.
func AllParsers() []string {
	return []string{ParserOpenAI, ParserAnthropic, ParserVLLM, ParserVLLMGRPC, ParserSGLang, ParserPassthrough}
}

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

// Incoming is a request from a gateway.
type Incoming struct {
	Path    string  // including the query; empty if the gateway did not send it
	Headers Headers // the requested ones
	Body    []byte  // empty if the request has no body, or if the gateway did not send it
	Digest  *Digest // describes the prompt in place of a body; may be nil
}

// A Request is the content of a body. It can be reused for other bodies.
type Request struct {
	API *API

	Model     string        // empty if the body names no model
	ModelSpan jsonscan.Span // of the model between its quotes, as the client wrote it
	Salt      uint64        // hash of the cache salt; 0 if the body has none
	Stream    bool
	Head      []Part // what comes first in the prompt, wherever it is in the body: tools, the system prompt, media
	Prompt    []Part // the first of several prompts, after its head
	Turns     Turns
	Tokens    int // of all prompts, estimated; including the parts that were not collected
	Text      int // those of them that are estimated from the length of texts

	body         []byte
	scanner      jsonscan.Scanner
	modelEscaped bool // the model is written with escapes
	head         collected
	tools        collected // of the head
	system       collected // of the head
	main         collected
	otherPrompts count         // after the first
	hasher       xxhash.Digest // of strings that are not in their shortest spelling
	short        []byte        // buffer for their shortest spelling
}

// Parse reads the body of a request in the format of its path. The caller uses the first maxTokens tokens of the prompt, so
// Parse collects no parts after them.
func (r *Request) Parse(p *Parsers, in Incoming, maxTokens int) error {
	r.reset(in.Body, maxTokens)
	err := r.parse(p, in)
	r.scanner.Reset(nil)
	r.body = nil // it belongs to the caller
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// reset discards everything and sets another body.
func (r *Request) reset(body []byte, maxTokens int) {
	*r = Request{body: body, scanner: r.scanner, head: r.head, tools: r.tools, system: r.system, main: r.main, short: r.short}
	r.scanner.Reset(body)
	most := maxParts(body)
	for _, c := range []*collected{&r.head, &r.tools, &r.system} {
		c.reset(maxTokens, min(most, maxHead))
	}
	r.main.reset(maxTokens, most)
}

func (r *Request) parse(p *Parsers, in Incoming) error {
	if in.Digest != nil {
		r.readDigest(in.Digest)
		return nil
	}
	if r.API = bodiless; len(in.Body) == 0 {
		return nil
	}
	path := in.Path
	if path == "" {
		path = in.Headers.First(headerOriginalPath, headerForwardedPath)
	}
	switch r.API = p.find(path); {
	case path == "" && isObject(in.Body): // NGINX Gateway Fabric
		r.API = pathless
	case path == "":
		r.API = unknown
	case r.API == nil:
		return errNoParser
	}
	if r.API.read == nil {
		return nil
	}
	if err := r.API.read(r); err != nil {
		return err
	}
	r.joinPrompt()
	return nil
}

// isObject reports whether a body begins like a JSON object.
func isObject(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, jsonscan.Blanks), []byte("{"))
}

// discardPrompt discards the prompt without its head. Of several fields with a prompt, the last counts.
func (r *Request) discardPrompt() {
	r.main.restart()
	r.otherPrompts, r.Turns = count{}, Turns{}
}

// joinPrompt completes the prompt.
func (r *Request) joinPrompt() {
	r.head.append(&r.tools)
	r.head.append(&r.system)
	r.Head, r.Prompt = r.head.parts, r.main.parts
	r.Tokens = estimateTokens(r.head.count, r.main.count, r.otherPrompts)
	r.Text = r.Tokens - r.head.tokens - r.main.tokens - r.otherPrompts.tokens
}

// OnePrompt reports whether the body has one prompt only.
func (r *Request) OnePrompt() bool { return r.otherPrompts == count{} }

// DropLarge releases the memory of a large prompt, so that a pool does not keep it.
func (r *Request) DropLarge() {
	r.head.dropLarge()
	r.main.dropLarge()
	r.Head, r.Prompt = nil, nil
}
