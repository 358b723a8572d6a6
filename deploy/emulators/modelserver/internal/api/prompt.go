package api

import (
	"bytes"
	"encoding/json"

	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
)

// chatPrompt renders a conversation to tokens. As in chat templates, tools are before the first message.
func (s *Server) chatPrompt(messages []chatMessage, tools json.RawMessage) ([]uint32, error) {
	if messages == nil {
		return nil, missingField("messages")
	}
	rendered := make([]tokens.Message, len(messages))
	for i, m := range messages {
		if m.Role == "" {
			return nil, missingField("role")
		}
		content, err := contentText(m.Content)
		if err != nil {
			return nil, err
		}
		rendered[i] = tokens.Message{Role: m.Role, Content: content + presentText(m.ToolCalls)}
	}
	return tokens.AppendChat(s.Tokenizer, s.Tokenizer.AppendText(nil, presentText(tools)), rendered), nil
}

// inputPrompt renders the instructions and the input of the Responses API to tokens. The input is a text, or a list of messages.
func (s *Server) inputPrompt(instructions string, input json.RawMessage) ([]uint32, error) {
	if presentText(input) == "" {
		return nil, missingField("input")
	}
	messages := []chatMessage{{Role: "user", Content: input}}
	if bytes.TrimSpace(input)[0] == '[' {
		messages = nil
		if err := json.Unmarshal(input, &messages); err != nil {
			return nil, decodeError(err)
		}
	}
	if instructions != "" {
		text, err := json.Marshal(instructions)
		if err != nil {
			panic(err) // unreachable: strings always encode
		}
		messages = append([]chatMessage{{Role: "system", Content: text}}, messages...)
	}
	return s.chatPrompt(messages, nil)
}

// contentText returns the text of a message, which may consist of parts.
func contentText(raw json.RawMessage) (string, error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case presentText(raw) == "":
		return "", nil
	case raw[0] == '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", decodeError(err)
		}
		return text, nil
	}
	var parts []contentPart
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", decodeError(err)
	}
	var text []byte
	for _, part := range parts {
		if part.Type != "text" && part.Type != "input_text" && part.Type != "output_text" {
			return "", badRequest("", "This model takes text only, not %s.", part.Type)
		}
		text = append(text, part.Text...)
	}
	return string(text), nil
}

// presentText returns the JSON, or "" for a field that is missing or null.
func presentText(raw json.RawMessage) string {
	if string(raw) == "null" {
		return ""
	}
	return string(raw)
}

// textPrompts parses the prompt of a text completion: a text, a list of token ids, or a list of one of these.
func (s *Server) textPrompts(raw json.RawMessage) ([][]uint32, error) {
	if presentText(raw) == "" {
		return nil, missingField("prompt")
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return nonEmpty(s.Tokenizer.AppendText(nil, text))
	}
	var texts []string
	if json.Unmarshal(raw, &texts) == nil && len(texts) > 0 {
		prompts := make([][]uint32, len(texts))
		for i, text := range texts {
			prompts[i] = s.Tokenizer.AppendText(nil, text)
		}
		return nonEmpty(prompts...)
	}
	var ids []uint32
	if json.Unmarshal(raw, &ids) == nil {
		return nonEmpty(ids)
	}
	var lists [][]uint32
	if json.Unmarshal(raw, &lists) == nil {
		return nonEmpty(lists...)
	}
	return nil, badRequest("prompt", "prompt must be a string, array of strings, array of tokens, or array of token arrays")
}

func nonEmpty(prompts ...[]uint32) ([][]uint32, error) {
	for _, prompt := range prompts {
		if len(prompt) == 0 {
			return nil, badRequest("prompt", "The decoder prompt cannot be empty")
		}
	}
	return prompts, nil
}
