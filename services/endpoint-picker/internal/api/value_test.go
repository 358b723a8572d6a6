package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/test/apitest"
)

// callWith returns the parts of a prompt with a call that has arguments, as they are in a body.
func callWith(tb testing.TB, arguments string) []Part {
	tb.Helper()
	body := `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":` + arguments + `}}]}]}`
	var r Request
	require.NoError(tb, r.ParseIncoming(allParsers(tb), Incoming{Path: apitest.Chat, Body: []byte(body)}, enough))
	parts := r.Prompt
	for i := range parts {
		parts[i].From, parts[i].To = 0, 0
	}
	return parts
}

func TestArgumentsBeyondALimitMatchAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		size int
		want bool
	}{{maxArguments - 20, true}, {maxArguments, false}} {
		text := strings.Repeat("a", tt.size)
		got := assert.ObjectsAreEqual(callWith(t, `"{\"a\":\"`+text+`\"}"`), callWith(t, `"{ \"a\":\"`+text+`\"}"`))
		assert.Equal(t, tt.want, got, tt.size)
	}
}

// FuzzArguments checks that a string with an object is the same as the object, and that no other string is.
func FuzzArguments(f *testing.F) {
	f.Add(`{"a": [1, {"b": "c\n\u00e9"}], "arguments": "{\"a\": 1}"}`)
	f.Add(` {"a":1e2,"a":null}`)
	f.Add(`{"a":1}x`)
	f.Fuzz(func(t *testing.T, text string) {
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		if strings.ToValidUTF8(text, "") != text || strings.Contains(text, "NaN") || strings.Contains(text, "Infinity") || len(quoted) > maxArguments {
			return
		}
		got := callWith(t, string(quoted))
		if isObject := strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{"); isObject && json.Valid([]byte(text)) {
			require.Equal(t, callWith(t, text), got)
		} else if text != "" {
			require.NotEqual(t, callWith(t, `{}`), got)
		}
	})
}
