package request

import (
	"fmt"
	"strings"
)

// apis are the ends of the paths that take a JSON object with a prompt, and whether it must name a model.
var apis = []struct {
	suffix string
	model  bool
}{
	{"/completions", true}, // of OpenAI, chat too
	{"/embeddings", true},
	{"/responses", true},
	{"/messages", true}, // of Anthropic
	{"/messages/count_tokens", true},
	{"/generate", false}, // of vLLM and SGLang
}

// Parse takes a request and reads its body if its path is that of an API that is known. It reports whether it was.
func (r *Request) Parse(in Incoming) (bool, error) {
	r.Reset(in.Body)
	path, _, _ := strings.Cut(in.Path, "?")
	for _, api := range apis {
		if len(in.Body) == 0 || !strings.HasSuffix(path, api.suffix) {
			continue
		}
		if err := r.ParseJSON(); err != nil {
			return false, err
		}
		if api.model && r.Model.From == r.Model.To {
			return false, fmt.Errorf("%w: %w", ErrMalformed, errNoModel)
		}
		return true, nil
	}
	return false, nil
}
