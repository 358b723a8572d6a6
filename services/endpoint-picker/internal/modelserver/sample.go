package modelserver

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
)

// sampleText is the text whose tokens servers count: 4 KiB of prose, code, logs, JSON and other scripts, in a mix like that of prompts.
// It never contains anything of a request.
//
//go:embed sample.txt
var sampleText string

// quotedSample is the text as in the body of a request. What is counted of prompts is their text as it is written there, too: with
// escapes.
var quotedSample = quoteJSON(sampleText)

// sampleBytes is the length of quotedSample without its quotes.
var sampleBytes = len(quotedSample) - len(`""`)

// quoteJSON returns a text as JSON, as clients write it: with the characters of other scripts.
func quoteJSON(text string) []byte {
	b := &bytes.Buffer{}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text always encodes
	return bytes.TrimSpace(b.Bytes())
}

// newRequest returns the request that asks a server for the tokens of the sample. vLLM and SGLang answer the same request alike.
// Special tokens are not part of a text, so they do not count.
func (q *sampleQuestion) newRequest(ctx context.Context) (*http.Request, error) {
	scheme := schemeHTTP
	if q.tls != nil {
		scheme = schemeHTTPS
	}
	body := fmt.Appendf(nil, `{"model":%s,"prompt":%s,"add_special_tokens":false}`, quoteJSON(q.model), quotedSample)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+"://"+q.target.String()+tokenizePath, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("address of server: %w", err)
	}
	r.Header = http.Header{"User-Agent": {userAgent}, "Accept": {"application/json"}, "Content-Type": {"application/json"}}
	return r, nil
}
