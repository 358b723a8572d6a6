package answer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIDReader(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, body, want string }{
		{name: "an object", body: `{"id":"resp_1","object":"response","previous_response_id":"resp_0"}`, want: "resp_1"},
		{name: "blanks", body: "{\n  \"id\" :\t\"resp_1\"}", want: "resp_1"},
		{name: "sorted keys", body: `{"conversation":{"id":"conv_1"},"error":null,"id":"resp_1"}`, want: "resp_1"},
		{
			name: "events", want: "resp_1",
			body: "event: response.created\ndata: {\"response\":{\"id\":\"resp_1\",\"output\":[{\"id\":\"resp_2\"}]},\"type\":\"response.created\"}\n\n",
		},
		{name: "the previous one is not it", body: `{"previous_response_id":"resp_0"}`},
		{name: "a text is not it", body: `{"output":"\"id\":\"resp_0\""}`},
		{name: "another API", body: `{"id":"chatcmpl-1"}`},
		{name: "no string", body: `{"id":1}`},
		{name: "the longest", body: `{"id":"resp_` + strings.Repeat("a", maxID-5) + `"}`, want: "resp_" + strings.Repeat("a", maxID-5)},
		{name: "longer", body: `{"id":"resp_` + strings.Repeat("a", maxID-4) + `"}`},
		{name: "late", body: strings.Repeat(" ", maxBeforeID) + `{"id":"resp_1"}`},
		{name: "cut off", body: `{"id":"resp_1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(tt.body); size += 1 + size/3 {
				var got []string
				r := IDReader{Found: func(id []byte) { got = append(got, string(id)) }}
				for rest := tt.body; rest != ""; rest = rest[min(size, len(rest)):] {
					r.Read([]byte(rest[:min(size, len(rest))]))
				}
				assert.Equal(t, tt.want, strings.Join(got, " and "), "pieces of %d bytes", size)
				assert.LessOrEqual(t, cap(r.head), 2*maxBeforeID)
			}
		})
	}
}
