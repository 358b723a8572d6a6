package decisionapi

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Limits on the fields of a pick. All are far above what requests have; at half of any, none that is known would be refused, and
// at double an open pick may hold twice as much.
const (
	maxName    = 256      // the name of a header, bytes
	maxPath    = 8 << 10  // as in most HTTP servers
	maxHeader  = 8 << 10  // the value of a header, bytes
	maxHeaders = 64       // headers that a pick reads
	maxSalt    = 1 << 10  // bytes
	maxTokens  = 16 << 20 // of a prompt or an answer: as many token ids as the largest request body has at its default limit
	maxHashes  = 64 << 10 // blocks of a digest: prompts of 1 Mi tokens in blocks of 16. The picker reads fewer
	// maxBlockTokens is the maximum size of a block of a digest. Engines have up to 256, caches beside them up to 1024.
	maxBlockTokens = 4096
)

// pickParameters are the parameters of the query of a pick, for messages.
var pickParameters = []string{"n", "pool", "first_token", "wait"}

// headerPath marks the raw form of a pick: its body is the body of the request, and its headers are those of the request.
const headerPath = "X-Original-Path"

// A pickRequest is the request of a pick.
type pickRequest struct {
	request.IncomingHeaders

	body   []byte
	digest *api.Digest
}

// options are the options of a pick, from the query of its URL.
type options struct {
	endpoints  int    // at most
	pool       string // its title
	firstToken bool   // the client will report the first token when it comes
	wait       *time.Duration
}

// readOptions reads the query of a pick.
func readOptions(r *http.Request) (options, *Problem) {
	o := options{endpoints: usualEndpoints}
	for name, values := range r.URL.Query() {
		value := values[len(values)-1]
		var err error
		switch name {
		case "n":
			o.endpoints, err = strconv.Atoi(value)
			if err != nil || o.endpoints < 1 || o.endpoints > maxEndpoints {
				return o, fieldProblem("n", "it is not a number from 1 to %d", maxEndpoints)
			}
		case "pool":
			o.pool = value
		case "first_token":
			if o.firstToken, err = strconv.ParseBool(value); err != nil {
				return o, fieldProblem("first_token", "it is not true or false")
			}
		case "wait":
			wait, err := time.ParseDuration(value)
			if err != nil || wait < 0 {
				return o, fieldProblem("wait", "it is not a duration such as 400ms or 55s")
			}
			o.wait = &wait
		default:
			return o, fieldProblem(name[:min(len(name), maxName)], "unknown parameter: %s", useOneOf(pickParameters))
		}
	}
	return o, nil
}

// readRaw reads a pick in the raw form.
func (s *Server) readRaw(r *http.Request, body []byte) (*pickRequest, *Problem) {
	q := &pickRequest{body: body}
	if q.Path = r.Header.Get(headerPath); len(q.Path) > maxPath {
		return nil, fieldProblem(headerPath, "it is longer than %d bytes", maxPath)
	}
	for name, values := range r.Header {
		name = strings.ToLower(name)
		for _, value := range values {
			if p := q.addHeader(s.params.Options.Wanted, name, value); p != nil {
				return nil, p
			}
		}
	}
	q.sortHeaders()
	return q, nil
}

// readObject reads a pick in the form of an object.
func (s *Server) readObject(text []byte) (*pickRequest, *Problem) {
	o := &pickObject{wanted: s.params.Options.Wanted, length: len(text), size: prefixindex.BlockTokens}
	if problem := readObject(text, pickFields, o); problem != nil {
		return nil, problem
	}
	d := &o.digest
	switch {
	case o.digested && o.bodyField != "":
		return nil, fieldProblem(o.bodyField, "a pick has a body, or prompt_tokens and prompt_blocks: leave one of them out")
	case o.digested:
		o.pickRequest.digest = d
	case d.Model != "" || d.Salt != "" || d.Stream || d.Turns != (api.Turns{}):
		return nil, fieldProblem("prompt_tokens", "a digest needs it: give the number of tokens in the prompt")
	}
	o.sortHeaders()
	return &o.pickRequest, checkDigest(d, o.size)
}

// A pickObject is a pick in the form of an object, while it is read.
type pickObject struct {
	pickRequest

	wanted    *request.WantedHeaders
	length    int    // of its text, and the maximum length of the body
	bodyField string // the field that had it; empty for none
	digest    api.Digest
	digested  bool // the pick has a digest
	size      int  // of its blocks, in tokens
}

var pickFields = []field[pickObject]{
	{"path", func(r *fieldReader, path string, o *pickObject) { o.Path = r.readText(path, maxPath) }},
	{"headers", func(r *fieldReader, path string, o *pickObject) {
		r.readMembers(path, func(path, name string) { r.readHeader(path, name, o) })
	}},
	{"body", func(r *fieldReader, path string, o *pickObject) {
		o.bodyField, o.body = path, r.readString(path, o.length)
	}},
	{"body_base64", func(r *fieldReader, path string, o *pickObject) {
		o.bodyField, o.body = path, r.readBase64(path, o.length)
	}},
	{"model", func(r *fieldReader, path string, o *pickObject) { o.digest.Model = r.readText(path, api.MaxModel) }},
	{"cache_salt", func(r *fieldReader, path string, o *pickObject) { o.digest.Salt = r.readText(path, maxSalt) }},
	{"stream", func(r *fieldReader, path string, o *pickObject) { o.digest.Stream = r.readBool(path) }},
	{"prompt_tokens", func(r *fieldReader, path string, o *pickObject) {
		o.digested, o.digest.Tokens = true, r.readInteger(path, maxTokens)
	}},
	{"prompt_blocks", func(r *fieldReader, path string, o *pickObject) {
		o.digested = true
		r.readHashes(path, &o.digest)
	}},
	{"block_tokens", func(r *fieldReader, path string, o *pickObject) { o.size = r.readInteger(path, maxBlockTokens) }},
	{"conversation", func(r *fieldReader, path string, o *pickObject) {
		readFields(r, path, conversationFields, &o.digest.Turns)
	}},
}

// conversationFields are the lengths of a conversation, in blocks.
var conversationFields = []field[api.Turns]{
	{"opening", func(r *fieldReader, path string, t *api.Turns) { t.Opening = r.readInteger(path, maxHashes) }},
	{"asked", func(r *fieldReader, path string, t *api.Turns) { t.Asked = r.readInteger(path, maxHashes) }},
	{"history", func(r *fieldReader, path string, t *api.Turns) { t.History = r.readInteger(path, maxHashes) }},
}

// checkDigest checks a whole digest, and completes it.
func checkDigest(d *api.Digest, size int) *Problem {
	t := &d.Turns
	switch {
	case size == 0 || size%prefixindex.BlockTokens != 0:
		return fieldProblem("block_tokens", "it is not a multiple of %d", prefixindex.BlockTokens)
	case d.Tokens == 0:
		d.Tokens = min(len(d.Blocks)*size, maxTokens)
	case len(d.Blocks) > d.Tokens/size:
		return fieldProblem("prompt_blocks", "%d blocks of %d tokens are more than a prompt of %d tokens has", len(d.Blocks), size, d.Tokens)
	}
	if t.Opening > t.Asked || t.Asked > t.History || t.History > len(d.Blocks) || t.History > 0 && t.Opening == 0 {
		return fieldProblem("conversation", "0 < opening <= asked <= history <= %d blocks does not hold", len(d.Blocks))
	}
	d.Size = size / prefixindex.BlockTokens
	return nil
}

// readHeader reads the value of a header: a string, or a list of strings.
func (r *fieldReader) readHeader(path, name string, o *pickObject) {
	if r.NextKind() != api.Array {
		r.readHeaderValue(path, name, o)
		return
	}
	for r.EnterValue(); r.NextElement() && r.problem == nil; {
		r.readHeaderValue(path, name, o)
	}
}

// readHeaderValue reads one value of a header. One that has no effect may have any length.
func (r *fieldReader) readHeaderValue(path, name string, o *pickObject) {
	name = strings.ToLower(name)
	if name != request.HeaderRequestID && name != request.HeaderTrace && o.wanted.FindHeader([]byte(name)) == nil {
		if r.expectKind(path, api.String, "a string, or a list of strings") {
			r.SkipValue()
		}
		return
	}
	value := r.readText(path, maxHeader)
	if strings.ContainsFunc(value, unicode.IsControl) {
		r.setProblem(fieldProblem(path, "it contains control characters"))
	} else if p := o.addHeader(o.wanted, name, value); p != nil {
		r.setProblem(p)
	}
}

// addHeader adds a header in lower case, if it is needed.
func (q *pickRequest) addHeader(wanted *request.WantedHeaders, name, value string) *Problem {
	switch h := wanted.FindHeader([]byte(name)); {
	case name == request.HeaderRequestID:
		q.ID = value
	case name == request.HeaderTrace:
		q.TraceParent = value
	case h == nil:
	case len(value) > maxHeader:
		return fieldProblem(name, "it is longer than %d bytes", maxHeader)
	case len(q.Headers) == maxHeaders:
		return fieldProblem(name, "more than %d headers have an effect on the pick", maxHeaders)
	default:
		q.AddHeader(h, value)
	}
	return nil
}

// sortHeaders gives the headers an order that does not depend on that of a map. Values of one name keep theirs.
func (q *pickRequest) sortHeaders() {
	slices.SortStableFunc(q.Headers, func(a, b api.Header) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(q.Private)
}

// readBase64 reads bytes.
func (r *fieldReader) readBase64(field string, most int) []byte {
	text := r.readString(field, most)
	n, err := base64.StdEncoding.Decode(text, text) // in place: the result is shorter
	if err != nil {
		r.setProblem(fieldProblem(field, "it is not base64: %v", err))
		return nil
	}
	return text[:n]
}

// readHashes reads the hashes of blocks: strings of up to 16 hexadecimal digits, or numbers.
func (r *fieldReader) readHashes(field string, d *api.Digest) {
	d.Blocks = nil
	if !r.expectKind(field, api.Array, "a list") {
		return
	}
	for r.EnterValue(); r.NextElement() && r.problem == nil; {
		if len(d.Blocks) == maxHashes {
			r.setProblem(fieldProblem(field, "it has more than %d elements", maxHashes))
			return
		}
		hash, ok := r.readHash()
		if !ok && r.Err() == nil {
			r.setProblem(fieldProblem(field+"["+strconv.Itoa(len(d.Blocks))+"]",
				"it is not a string of 1 to 16 hexadecimal digits, or a whole number of 64 bits"))
			return
		}
		d.Blocks = append(d.Blocks, hash)
	}
}

func (r *fieldReader) readHash() (hash uint64, ok bool) {
	var err error
	if r.NextKind() == api.String {
		span, _ := r.ReadString()
		if len(r.TextOf(span)) > 16 {
			return 0, false
		}
		hash, err = strconv.ParseUint(string(r.TextOf(span)), 16, 64)
	} else {
		hash, err = strconv.ParseUint(string(r.TextOf(r.SkipValue())), 10, 64)
	}
	return hash, err == nil
}
