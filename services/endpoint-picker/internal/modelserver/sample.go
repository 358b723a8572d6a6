package modelserver

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
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
	if err := e.Encode(text); err != nil {
		panic(err) // unreachable: text always encodes
	}
	return bytes.TrimSpace(b.Bytes())
}

// sampleRequest returns the bytes of the request that asks a server for the tokens of the sample. vLLM and SGLang answer the same request
// alike. Special tokens are not part of a text, so they do not count.
func sampleRequest(target netip.AddrPort, model string) []byte {
	body := fmt.Appendf(nil, `{"model":%s,"prompt":%s,"add_special_tokens":false}`, quoteJSON(model), quotedSample)
	head := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: application/json\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		http.MethodPost, tokenizePath, target, userAgent, len(body))
	return append(head, body...)
}
