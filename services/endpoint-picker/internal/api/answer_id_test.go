package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// idsIn returns the identifiers that a reader finds in a body that comes in pieces.
func idsIn(body string, size int) []string {
	var got []string
	r := ResponseIDReader{OnFound: func(id []byte) { got = append(got, string(id)) }}
	for rest := body; rest != ""; rest = rest[min(size, len(rest)):] {
		r.ReadPiece([]byte(rest[:min(size, len(rest))]))
	}
	return got
}

func TestIDReader(t *testing.T) {
	t.Parallel()
	const created = "event: response.created\ndata: "
	tests := []struct{ name, body, want string }{
		{name: "an object", body: `{"id":"resp_1","object":"response","previous_response_id":"resp_0"}`, want: "resp_1"},
		{name: "another form", body: `{"object":"response","id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}`, want: "6ba7b810-9dad-11d1-80b4-00c04fd430c8"},
		{name: "blanks", body: "\n {\n  \"id\" :\t\"resp_1\"}", want: "resp_1"},
		{name: "sorted keys", body: `{"conversation":{"id":"conv_1"},"error":null,"id":"resp_1"}`, want: "resp_1"},
		{name: "behind a list", body: `{"output":[{"id":"msg_1"},["id"]],"id":"resp_1"}`, want: "resp_1"},
		{name: "behind a member response", body: `{"response":{"id":"a"},"id":"resp_1"}`, want: "resp_1"},
		{name: "behind escapes", body: `{"a\"":"\\","b":"\"id\":\"x\"","id":"resp_1"}`, want: "resp_1"},
		{name: "events", body: created + `{"response":{"id":"resp_1","output":[{"id":"resp_2"}]},"type":"response.created"}` + "\n\n", want: "resp_1"},
		{name: "events with identifiers of their own", body: created + `{"id":"event_1","response":{"output":[{"id":"msg_1"}],"id":"resp_1"}}` + "\n\n", want: "resp_1"},
		{name: "a second event", body: ": ping\n\ndata: {\"type\":\"ping\"}\n\n" + created + `{"type":"response.created","response":{"id":"r-1"}}` + "\n\n", want: "r-1"},
		{name: "an event of several lines", body: "data: {\"type\": \"response.created\",\ndata: \"response\": {\ndata: \"id\": \"r-1\"}}\n\n", want: "r-1"},
		{name: "an event of an item is not it", body: "data: {\"item\":{\"id\":\"msg_1\"},\"response\":[{\"id\":\"a\"}],\"id\":\"b\"}\n\n"},
		{name: "the previous one is not it", body: `{"previous_response_id":"resp_0"}`},
		{name: "a text is not it", body: `{"output":"\"id\":\"resp_0\""}`},
		{name: "a value is no key", body: `{"a":"id","b":"x","c":["id","x"]}`},
		{name: "another object is not it", body: `{} {"id":"resp_1"}`},
		{name: "no string", body: `{"id":1,"a":"b"}`},
		{name: "an object in its place", body: `{"id":{"id":"a"}}`},
		{name: "empty", body: `{"id":""}`},
		{name: "escapes", body: `{"id":"resp\u005f1"}`},
		{name: "no JSON", body: `}]"id":"resp_1"`},
		{name: "the longest", body: `{"id":"` + strings.Repeat("a", maxID) + `"}`, want: strings.Repeat("a", maxID)},
		{name: "longer", body: `{"id":"` + strings.Repeat("a", maxID+1) + `"}`},
		{name: "late", body: strings.Repeat(" ", maxBeforeID) + `{"id":"resp_1"}`},
		{name: "cut off", body: `{"id":"resp_1`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(tt.body); size += 1 + size/3 {
				assert.Equal(t, tt.want, strings.Join(idsIn(tt.body, size), " and "), "pieces of %d bytes", size)
			}
		})
	}
}

// An identifier in the first piece takes no memory.
func TestIDReaderAllocatesNothing(t *testing.T) {
	for _, body := range []string{
		`{"conversation":{"id":"conv_1"},"error":null,"id":"resp_1","object":"response","created_at":1`,
		"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"output\":[]}}\n\nevent: response.in_progress\ndata: {",
	} {
		piece, found := []byte(body), 0
		onFound := func([]byte) { found++ }
		var r ResponseIDReader
		assert.Zero(t, testing.AllocsPerRun(10, func() {
			r = ResponseIDReader{OnFound: onFound}
			r.ReadPiece(piece)
		}), body)
		assert.Positive(t, found)
	}
}

// FuzzIDReader checks that the reader finds what encoding/json finds, however the body is divided.
func FuzzIDReader(f *testing.F) {
	f.Add(`{"object":"response","id":"resp_1"}`, 1)
	f.Add(`{"conversation":{"id":"a"},"output":["id",{"id":"b"}],"id":"resp_1"}`, 3)
	f.Add("data: {\"response\":{\"id\":\"resp_1\"}}\n\n", 7)
	f.Fuzz(func(t *testing.T, body string, size int) {
		got := idsIn(body, len(body)+1)
		require.LessOrEqual(t, len(got), 1)
		require.Equal(t, got, idsIn(body, max(size&0xff, 1)))
		var want map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &want) != nil || want == nil || len(body) > maxBeforeID || strings.Contains(body, `\`) {
			return
		}
		id, _ := bytes.CutPrefix(bytes.TrimSuffix(want["id"], []byte(`"`)), []byte(`"`))
		if strings.Count(body, `"id"`) == 1 && len(want["id"]) == len(id)+2 && want["id"][0] == '"' && 0 < len(id) && len(id) <= maxID {
			require.Equal(t, []string{string(id)}, got)
		}
	})
}
