package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// events are data of events, each with a text or something like it.
var events = []string{
	`{"choices":[{"delta":{"content":"a"}}]}`,
	`{"choices":[{"delta":{"content":" a \" longer one\n"}}]}`,
	`{"choices":[{"delta":{"content":""}}]}`,
	`{"choices":[{"delta":{"content":"a\"}}]}`,
	`{"choices":[{"delta":{"content":"a"}}]} `,
	`{"choices":[{"delta":{"content":"a","x":"b"}}]}`,
	`{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}`,
	`{"choices":[{"delta":{"content":"a"},"finish_reason":"error"}]}`,
	`{"choices":[{"delta":{"content":"a"}}],"error":{"message":"a"}}`,
	`{"choices":[{"delta":{"content":"a"}}],"error":{"message":"b"}}`,
	`{"choices":[{"delta":{"role":"assistant"}}]}`,
	`{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`,
	`{"type":"content_block_delta","delta":{"type":"text_delta","text":"b"}}`,
	`{"type":"response.output_text.delta","delta":"a"}`,
	`{"type":"response.output_text.delta","delta":"message_stop"}`,
	`{"type":"response.output_text.done","delta":"a"}`,
	`{"text":"a","error":"b"}`, `{"text":"\","error":"b"}`, `{"text":"a"}`, `{"text":"a","text":"b"}`, `{"text":["a"]}`, `{"text":"a\u00"}`, "{\"text\":\"\x01\"}", `{"text":"`, `{"text":"a"`, `{"other":"a"}`, `{"other":"b"}`, `7`,
}

// checkUsual compares a reader that has read an event before with one that has not.
func checkUsual(t *testing.T, before, event string) {
	t.Helper()
	for _, strict := range []bool{true, false} {
		fresh, both, alone := AnswerReader{Events: true, Strict: strict}, AnswerReader{Events: true, Strict: strict}, AnswerReader{Events: true, Strict: strict}
		read := func(r *AnswerReader, data string) int { return r.ReadPiece([]byte("data: " + data + "\n\n")) }
		read(&alone, before)
		read(&both, before)
		assert.Equal(t, read(&fresh, event), read(&both, event), "%q after %q", event, before)
		assert.Equal(t, alone.ErrorCount()+fresh.ErrorCount(), both.ErrorCount(), "%q after %q", event, before)
		assert.Equal(t, alone.finished || fresh.finished, both.finished, "%q after %q", event, before)
		assert.Equal(t, alone.known || fresh.known, both.known, "%q after %q", event, before)
		assert.Equal(t, alone.unknown || fresh.unknown, both.unknown, "%q after %q", event, before)
		assert.Equal(t, alone.refused || fresh.refused, both.refused, "%q after %q", event, before)
	}
}

func TestReader_EventsLikeTheOneBefore(t *testing.T) {
	t.Parallel()
	for _, before := range events {
		for _, event := range events {
			checkUsual(t, before, event)
		}
	}
}

func FuzzReader_EventsLikeTheOneBefore(f *testing.F) {
	for i, event := range events {
		f.Add(events[(i+1)%len(events)], event)
	}
	f.Fuzz(func(t *testing.T, before, event string) {
		for _, text := range []string{before, event} {
			for _, c := range text {
				if c == '\n' || c == '\r' {
					t.Skip("several lines")
				}
			}
		}
		checkUsual(t, before, event)
	})
}
