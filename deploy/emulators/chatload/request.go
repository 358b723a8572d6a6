package chatload

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []message     `json:"messages"`
	MaxTokens     int           `json:"max_tokens"`
	IgnoreEOS     bool          `json:"ignore_eos,omitempty"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
	ReturnIDs     bool          `json:"return_token_ids"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// do sends request number i and reads its answer to the end.
func (r *runner) do(ctx context.Context, i int) Result {
	result := Result{Index: i, Group: r.Prompts.Group(i), Start: time.Now()}
	limited, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	result.Err = r.exchange(limited, &result)
	result.Duration = time.Since(result.Start)
	result.Class = classify(ctx, result.Err)
	return result
}

func (r *runner) exchange(ctx context.Context, result *Result) error {
	request, err := r.newRequest(ctx, result.Index)
	if err != nil {
		return err
	}
	result.Start = time.Now()
	response, err := r.client.Do(request)
	if err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // an error of reading was already returned

	result.Status = response.StatusCode
	result.ServedBy = response.Header.Get(headerServedBy)
	result.ServedEndpoint = response.Header.Get(headerServedEndpoint)
	result.PickedEndpoint = response.Header.Get(headerPickedEndpoint)
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300)) // a part of the text is enough
		return &classError{ClassStatus, fmt.Errorf("status %d: %s", response.StatusCode, bytes.TrimSpace(text))}
	}
	if mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type")); err != nil || mediaType != "text/event-stream" {
		return malformed("answer is %q, not a stream of events", response.Header.Get("Content-Type"))
	}
	stream := chatStream{onTokens: func(n int) {
		if result.Tokens == 0 {
			result.TTFT = time.Since(result.Start)
		}
		result.Tokens += n
	}}
	if err := stream.read(response.Body); err != nil {
		return err
	}
	return r.check(result, stream.usage)
}

// newRequest returns a request without GetBody, so that net/http cannot send it twice.
func (r *runner) newRequest(ctx context.Context, i int) (*http.Request, error) {
	body, err := json.Marshal(chatRequest{
		Model: r.Model, Messages: r.Prompts.messages(i), MaxTokens: r.MaxTokens, IgnoreEOS: r.IgnoreEOS,
		Stream: true, StreamOptions: streamOptions{IncludeUsage: true}, ReturnIDs: true,
	})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(r.BaseURL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	request.GetBody = nil
	for name, values := range r.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("X-Request-Id", fmt.Sprintf("chatload-%d-%d", r.Prompts.Seed, i))
	return request, nil
}

// check compares the tokens and the endpoints of a complete answer.
func (r *runner) check(result *Result, u *usage) error {
	mismatch := func(format string, args ...any) error { return &classError{ClassTokens, fmt.Errorf(format, args...)} }
	if u == nil {
		return mismatch("answer has no usage")
	}
	result.PromptTokens = u.PromptTokens
	if u.Details != nil {
		result.CachedTokens = u.Details.CachedTokens
	}
	switch {
	case result.Tokens != u.CompletionTokens:
		return mismatch("received %d tokens, but the server reports %d", result.Tokens, u.CompletionTokens)
	case result.Tokens > r.MaxTokens, r.IgnoreEOS && result.Tokens != r.MaxTokens:
		return mismatch("received %d tokens, but requested %d", result.Tokens, r.MaxTokens)
	}
	picked, served := result.PickedEndpoint, result.ServedEndpoint
	if both := picked != "" && served != ""; picked != served && both || !both && r.RequirePicked {
		return &classError{ClassPicked, fmt.Errorf("picked endpoint is %q, but %q answered", picked, served)}
	}
	return nil
}
