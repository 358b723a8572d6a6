// Package api reads inference requests and their answers in the formats of several APIs: the requested model and the prompt, then content,
// errors and usage (answer_usage.go).
//
// ParseIncoming reads a body once. It decodes the name of the model, and returns positions in the body for all else. A prompt is a
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
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Reasons why a request is refused.
var (
	// ErrMalformed means that the request needs what its body does not have, or what cannot be read there.
	ErrMalformed = errors.New("parse request body")
	// ErrEncoded means that the body is compressed.
	ErrEncoded = errors.New("the picker does not read compressed bodies: send it without Content-Encoding")
	// ErrNoModel means that the body names no model, though its API has one.
	ErrNoModel  = errors.New("model not found in request body")
	errNoParser = errors.New("no parser for its path: add passthrough-parser to requestHandler.parsers to accept any body")
)

// An API contains the properties of requests to the paths with one suffix.
type API struct {
	suffix     string
	readBody   func(*Request) error // reads the body; nil if it is ignored
	fields     fields               // of the body, if it is a JSON object
	namesModel bool                 // requests should name a model
	// Generates means that the model computes the prompt, and so has it in its cache afterwards.
	Generates bool
	// Stores means that the server may store the answer, for requests that name it (Request.Stored).
	Stores bool
	// Usage is the format of usage in answers.
	Usage AnswerFormat
}

// APIs without a parser.
var (
	unknown  = &API{Generates: true, readBody: (*Request).readJSON, fields: otherFields} // for unclaimed paths
	opaque   = &API{Generates: true}                                                     // for bodies in no known format
	bodiless = &API{}                                                                    // for requests without a body
	triton   = &API{suffix: kserveGenerate, Generates: true, Usage: FormatOpen}          // for its generate extension of KServe's protocol
)

// pathless is for JSON objects from gateways that do not send paths. It has the prompts of all APIs: each API ignores the
// fields of the others, or has an object there, which is not a prompt (text and prompt of the responses API).
var pathless = &API{
	Generates: true, Usage: FormatOpen, readBody: (*Request).readJSON,
	fields: fieldsOf("model", "stream", "cache_salt", "extra_key", "tools", "system", "instructions", "messages", "input", "prompt", "text",
		"token_ids", "input_ids", "previous_response_id"),
}

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

// IsInference reports whether the request is for an API of inference, whose answers have a known form.
func (r *Request) IsInference() bool {
	return r.API.Generates && (r.API.suffix != "" || (r.API == pathless || r.API == digested) && r.Tokens > 0)
}

// Parsers maps paths to APIs. They are never changed.
type Parsers struct {
	apis   []*API // longest suffix first
	others bool   // accept paths without a parser, and bodies that their parser cannot read
}

// NewParsers returns the parsers with the given names. Without the passthrough parser, bodies of other paths are refused, and those that
// their parser cannot read.
func NewParsers(names ...string) (*Parsers, error) {
	p := &Parsers{}
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

// kservePath is in the paths of KServe's protocol, version 2, which Triton speaks. They name the model, and one of them ends like SGLang's.
const (
	kservePath     = "/v2/models/"
	kserveGenerate = "/generate" // and /generate_stream
)

// ollamaGenerate is a path of Ollama, which ends like SGLang's: its answers are lines of JSON.
const ollamaGenerate = "/api/generate"

// findAPI returns the API of a clean path, or nil if its bodies are refused.
func (p *Parsers) findAPI(clean string) *API {
	api, claims := unknown, func(a *API) bool { return strings.HasSuffix(clean, a.suffix) }
	if _, model, found := strings.Cut(clean, kservePath); found {
		if api = opaque; strings.Contains(model, kserveGenerate) {
			api = triton
		}
	} else if i := slices.IndexFunc(p.apis, claims); i >= 0 && clean != ollamaGenerate {
		return p.apis[i]
	}
	if !p.others {
		return nil
	}
	return api
}

// Incoming is a request from a gateway.
type Incoming struct {
	Path    string  // including the query; empty if the gateway did not send it
	Headers Headers // the requested ones
	Body    []byte  // empty if the request has no body, or if the gateway did not send it
	Digest  *Digest // describes the prompt in place of a body; may be nil
}

// rawPath returns the path as the client wrote it, without the query. It is empty if unknown.
func (in *Incoming) rawPath() string {
	raw := in.Path
	if raw == "" {
		raw = in.Headers.FirstOf(headerOriginalPath, headerForwardedPath)
	}
	raw, _, _ = strings.Cut(raw, "?")
	return raw
}

// CleanPath returns the path without the query, percent-encoding, and slashes without meaning, which some model servers understand. It is
// empty if unknown.
func (in *Incoming) CleanPath() string {
	raw := in.rawPath()
	if raw == "" {
		return ""
	}
	if strings.Contains(raw, "%") {
		if decoded, err := url.PathUnescape(raw); err == nil {
			raw = decoded
		}
	}
	return path.Clean(raw)
}

// A Request is the content of a body. It can be reused for other bodies.
type Request struct {
	API *API

	// Unread says why the model is unknown, if the body should name one: it cannot be read (then it has no prompt, either), or names none
	// (ErrNoModel).
	Unread error

	PathHash   uint64 // of the path as the client wrote it, because servers may refuse another spelling
	Model      string // empty if unknown
	ModelSpan  Span   // of the model between its quotes, as the client wrote it
	ModelPlain bool   // the model is neither quoted nor escaped, because the body is a form
	Salt       uint64 // hash of the cache salt; 0 if the body has none
	Stored     uint64 // hash of the identifier of a stored response that the request names; 0 if it names none
	Stream     bool
	Head       []Part // what comes first in the prompt, wherever it is in the body: tools, the system prompt, media
	Prompt     []Part // the first of several prompts, after its head
	Turns      Turns
	Tokens     int // of all prompts, estimated; including the parts that were not collected
	Text       int // those of them that are estimated from the length of texts

	body         []byte
	scanner      Scanner
	modelEscaped bool // the model is written with escapes
	head         partList
	tools        partList // of the head
	system       partList // of the head
	main         partList
	otherPrompts sizeCount     // after the first
	hasher       xxhash.Digest // of strings that are not in their shortest spelling
	short        []byte        // buffer for their shortest spelling
	arguments    []byte        // buffer for the arguments of a call of a tool
	inner        Scanner
}

// ParseIncoming reads the body of a request in the format of its path. The caller uses the first maxTokens tokens of the prompt, so
// ParseIncoming collects no parts after them. A body that cannot be read is no error with the passthrough parser: the model server judges
// it. An error is ErrMalformed.
func (r *Request) ParseIncoming(p *Parsers, in Incoming, maxTokens int) error {
	r.resetBody(in.Body, maxTokens)
	err := r.parseBody(p, &in, maxTokens)
	r.scanner.Reset(nil)
	r.body = nil // it belongs to the caller
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// resetBody discards everything and sets another body.
func (r *Request) resetBody(body []byte, maxTokens int) {
	*r = Request{body: body, scanner: r.scanner, head: r.head, tools: r.tools, system: r.system, main: r.main, short: r.short,
		arguments: r.arguments, inner: r.inner}
	r.scanner.NonFinite = true // servers read JSON with Python
	r.scanner.Reset(body)
	most := maxParts(body)
	for _, c := range []*partList{&r.head, &r.tools, &r.system} {
		c.resetLimits(maxTokens, min(most, maxHead))
	}
	r.main.resetLimits(maxTokens, most)
}

func (r *Request) parseBody(p *Parsers, in *Incoming, maxTokens int) error {
	if in.Digest != nil {
		d := in.Digest // its blocks stay where they are
		r.API, r.Model, r.Stream, r.Tokens = digested, d.Model, d.Stream, d.Tokens
		return nil
	}
	clean := in.CleanPath()
	stored := storedResponse(clean)
	r.API, r.Stored = bodiless, stored
	if len(in.Body) == 0 {
		return nil
	}
	if r.API = p.apiOf(clean, in); r.API == nil {
		return errNoParser
	}
	r.PathHash = xxhash.Sum64String(in.rawPath())
	err := r.readBody(in.Headers)
	if err == nil && r.API.namesModel && r.Model == "" {
		err = ErrNoModel
	}
	if err != nil && !p.others {
		return err
	}
	if err == nil || errors.Is(err, ErrNoModel) {
		r.Unread = err
		r.joinPrompt()
		return nil
	}
	api, hash := r.API, r.PathHash
	r.resetBody(in.Body, maxTokens)
	r.Stored, r.PathHash = stored, hash
	if r.API = api; api.mayName(err, in.Headers) {
		r.Unread = err
	}
	return nil
}

// apiOf returns the API of a request with a body, or nil if the body is refused.
func (p *Parsers) apiOf(clean string, in *Incoming) *API {
	api := pathless // for NGINX Gateway Fabric
	if clean != "" {
		api = p.findAPI(clean)
	}
	if api != unknown && api != pathless || isObject(in.Body) || promisesModel(in.Headers) {
		return api
	}
	return opaque
}

// readBody reads the body. An error means that it cannot be read, though it may name a model.
func (r *Request) readBody(h Headers) error {
	if r.API.readBody == nil {
		return nil
	}
	if encoding := h.ValueOf(headerContentEncoding); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return ErrEncoded
	}
	if boundary := boundaryOf(h.ValueOf(headerContentType)); boundary != "" {
		return r.readForm(boundary)
	}
	return r.API.readBody(r)
}

// mayName reports whether a body that cannot be read may name a model.
func (a *API) mayName(reason error, h Headers) bool {
	switch {
	case a.fields == nil, errors.Is(reason, errNotObject):
		return false
	case a == unknown:
		return promisesModel(h)
	}
	return true
}

// isObject reports whether a body begins like a JSON object.
func isObject(body []byte) bool {
	body = bytes.TrimPrefix(body, []byte(byteOrderMark))
	return bytes.HasPrefix(bytes.TrimLeft(body, jsonBlanks), []byte("{"))
}

// promisesModel reports whether headers promise a format with a model.
func promisesModel(h Headers) bool {
	contentType := h.ValueOf(headerContentType)
	return isJSON(contentType) || boundaryOf(contentType) != ""
}

// isJSON reports whether a content type is that of JSON.
func isJSON(contentType string) bool {
	contentType, _, _ = strings.Cut(contentType, ";")
	contentType = strings.TrimSpace(contentType)
	return strings.EqualFold(contentType, "application/json") || strings.HasSuffix(strings.ToLower(contentType), "+json")
}

// discardPrompt discards the prompt without its head. Of several fields with a prompt, the last counts.
func (r *Request) discardPrompt() {
	r.main.clearParts()
	r.otherPrompts, r.Turns = sizeCount{}, Turns{}
}

// joinPrompt completes the prompt.
func (r *Request) joinPrompt() {
	r.head.appendList(&r.tools)
	r.head.appendList(&r.system)
	r.Head, r.Prompt = r.head.parts, r.main.parts
	r.Tokens = estimateTokens(r.head.sizeCount, r.main.sizeCount, r.otherPrompts)
	r.Text = r.Tokens - r.head.tokens - r.main.tokens - r.otherPrompts.tokens
}

// OnePrompt reports whether the body has one prompt only.
func (r *Request) OnePrompt() bool { return r.otherPrompts == sizeCount{} }

// DropLarge releases the memory of a large prompt, so that a pool does not keep it.
func (r *Request) DropLarge() {
	r.head.dropLarge()
	r.main.dropLarge()
	if cap(r.arguments) > pooledArguments {
		r.arguments = nil
	}
	r.Head, r.Prompt = nil, nil
}
