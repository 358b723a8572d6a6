package chatload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

type chunk struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Choices []chunkChoice   `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type chunkChoice struct {
	Index int `json:"index"`
	Delta struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"delta"`
	FinishReason string   `json:"finish_reason"`
	TokenIDs     []uint32 `json:"token_ids"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	Details          *struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// A chatStream reads the events of one streamed chat completion, and requires this order:
//
//	role of the assistant, deltas with content, a finish reason with or after the last delta, usage, [DONE], end
type chatStream struct {
	onTokens func(n int) // called for each delta with content

	id       string
	opened   bool // received the role
	finished bool // received the finish reason
	done     bool // received [DONE]
	comment  bool // the last line was a comment
	tokens   int
	usage    *usage
}

// read reads the stream to its end.
func (s *chatStream) read(body io.Reader) error {
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0 && s.done:
			return nil
		case errors.Is(err, io.EOF):
			return &classError{ClassTruncated, fmt.Errorf("stream ended after %d tokens without [DONE]", s.tokens)}
		case err != nil:
			return &classError{ClassReset, fmt.Errorf("read stream after %d tokens: %w", s.tokens, err)}
		}
		if err := s.event(line, lines); err != nil {
			return err
		}
	}
}

// event handles the first line of an event and the empty line that must follow.
func (s *chatStream) event(line []byte, lines *bufio.Reader) error {
	if s.isComment(line) {
		return nil
	}
	data, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("data: "))
	if !ok || s.done {
		return malformed("unexpected line %q", line)
	}
	switch next, err := lines.ReadByte(); {
	case err != nil:
		return s.cutOff(err)
	case next != '\n':
		return malformed("event %q is not followed by an empty line", data)
	}
	if string(data) == "[DONE]" {
		if !s.finished {
			return malformed("stream has no finish_reason")
		}
		s.done = true
		return nil
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return malformed("decode event %q: %w", data, err)
	}
	return s.chunk(c, data)
}

// isComment reports whether a line is a comment, which proxies send to keep connections alive, or the empty line after a comment.
func (s *chatStream) isComment(line []byte) bool {
	afterComment := s.comment
	s.comment = line[0] == ':' && !s.done
	return s.comment || afterComment && line[0] == '\n'
}

// cutOff returns the error for a stream that ends inside an event.
func (s *chatStream) cutOff(err error) error {
	class := ClassReset
	if errors.Is(err, io.EOF) {
		class = ClassTruncated
	}
	return &classError{class, fmt.Errorf("stream ended inside an event after %d tokens: %w", s.tokens, err)}
}

func (s *chatStream) chunk(c chunk, data []byte) error {
	switch {
	case c.Error != nil:
		return malformed("server sent an error in the stream: %s", c.Error)
	case c.Object != "chat.completion.chunk" || c.ID == "" || s.id != "" && s.id != c.ID:
		return malformed("event belongs to another answer: %q", data)
	}
	s.id = c.ID
	if c.Usage != nil {
		s.usage = c.Usage
	}
	if len(c.Choices) > 0 {
		return s.choice(c.Choices, data)
	}
	if c.Usage == nil || !s.finished {
		return malformed("event without a choice: %q", data)
	}
	return nil
}

func (s *chatStream) choice(choices []chunkChoice, data []byte) error {
	choice := choices[0]
	switch {
	case len(choices) > 1 || choice.Index != 0:
		return malformed("more than one choice: %q", data)
	case s.finished:
		return malformed("choice after the finish_reason: %q", data)
	case !s.opened && choice.Delta.Role != "assistant":
		return malformed("first delta does not have the role of the assistant: %q", data)
	}
	s.opened = true
	s.finished = choice.FinishReason != ""
	if choice.Delta.Content != "" {
		n := choice.tokens()
		s.tokens += n
		s.onTokens(n)
	}
	return nil
}

// tokens returns the number of tokens of a delta: one, if the server does not send token ids. vLLM sends several tokens in one
// event when the client or the server is late.
func (c *chunkChoice) tokens() int { return max(1, len(c.TokenIDs)) }

func malformed(format string, args ...any) error {
	return &classError{ClassMalformed, fmt.Errorf(format, args...)}
}
