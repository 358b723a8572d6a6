package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// rename passes a body through a ModelRenamer, in pieces. from is a name, to a JSON string.
func rename(from, to, body string, size int) string {
	r := NewModelRenamer(from, []byte(to))
	var out []byte
	for at := 0; at < len(body); at += size {
		out = r.Append(out, []byte(body[at:min(at+size, len(body))]))
	}
	return string(r.Flush(out))
}

func TestRenamer(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "empty"},
		{name: "none", give: `{"id": 1}`, want: `{"id": 1}`},
		{name: "plain", give: `{"id":1,"model":"base-v2","x":2}`, want: `{"id":1,"model":"asked","x":2}`},
		{name: "spaces", give: "{\"model\" \t:\r\n \"base-v2\"}", want: "{\"model\" \t:\r\n \"asked\"}"},
		{name: "several events", give: "data: {\"model\":\"base-v2\"}\n\ndata: {\"model\":\"base-v2\"}\n\n", want: "data: {\"model\":\"asked\"}\n\ndata: {\"model\":\"asked\"}\n\n"},
		{name: "inside an object", give: `{"message":{"model":"base-v2"}}`, want: `{"message":{"model":"asked"}}`},
		{name: "another model", give: `{"model":"base-v2-large"}`, want: `{"model":"base-v2-large"}`},
		{name: "not a key", give: `["model","base-v2"]`, want: `["model","base-v2"]`},
		{name: "in a text", give: `{"content":"\"model\":\"base-v2\""}`, want: `{"content":"\"model\":\"base-v2\""}`},
		{name: "not a text", give: `{"model":null,"model":"base-v2"}`, want: `{"model":null,"model":"asked"}`},
		{name: "cut off", give: `{"model":"base-`, want: `{"model":"base-`},
		{name: "cut off in an escape", give: `{"model":"base\u00`, want: `{"model":"base\u00`},
		{name: "an invalid escape", give: `{"model":"base\u00","model":"base-v2"}`, want: `{"model":"base\u00","model":"asked"}`},
		{name: "escaped", give: `{"model":"\u0062ase-v2","model":"\u0062ase-v3"}`, want: `{"model":"asked","model":"\u0062ase-v3"}`},
		{name: "longer than any spelling", give: `{"model":"` + strings.Repeat(`\u0062`, 100) + `","model":"base-v2"}`, want: `{"model":"` + strings.Repeat(`\u0062`, 100) + `","model":"asked"}`},
		{name: "a key as a value", give: `{"a":"model","model":"base-v2"}`, want: `{"a":"model","model":"asked"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for size := 1; size <= len(tt.give)+1; size++ {
				assert.Equal(t, tt.want, rename("base-v2", `"asked"`, tt.give, size), "in pieces of %d", size)
			}
		})
	}
}

func TestRenamer_KnowsANameHoweverTheServerSpellsIt(t *testing.T) {
	t.Parallel()
	const name = `a&b</c>"é\😀`
	for _, spelling := range []string{
		`a&b</c>\"é\\😀`,                             // Python's orjson
		`a&b</c>\"\u00e9\\\ud83d\ude00`,             // Python's json
		`a\u0026b\u003c/c\u003e\"é\\😀`,              // Go
		`a&b<\/c>\"\u00E9\\\uD83D\uDE00`,            // PHP
		`\u0061\u0026b\u003c\u002fc>\u0022é\u005c😀`, // anything
	} {
		body := `{"model": "` + spelling + `", "text": "\"model\": \"a\""}`
		want := `{"model": "asked", "text": "\"model\": \"a\""}`
		for size := 1; size <= len(body); size++ {
			assert.Equal(t, want, rename(name, `"asked"`, body, size), "%s in pieces of %d", spelling, size)
		}
	}
}

func TestRenamerHoldsLittleBack(t *testing.T) {
	t.Parallel()
	r := NewModelRenamer("base", []byte(`"asked"`))
	out := r.Append(nil, []byte("data: {\"choices\":[]}\n\n"))
	assert.Equal(t, "data: {\"choices\":[]}\n\n", string(out), "a whole event goes on at once")
	out = r.Append(nil, append([]byte(`"model"`), bytes.Repeat([]byte(" "), 100)...))
	assert.Len(t, out, len(`"model"`)+100)
	r = NewModelRenamer("base", []byte(`"asked"`))
	long := `"model":"` + strings.Repeat("x", MaxEscape*len("base")+2)
	assert.Equal(t, long, string(r.Append(nil, []byte(long))), "a name that is longer than any spelling")
}

func FuzzRenamer(f *testing.F) {
	f.Add(`{"model":"a"}`, uint8(1))
	f.Add(`"model":"model":"a"`, uint8(2))
	f.Add(`"model":"\u0061","model":"\u006`, uint8(3))
	f.Add(`"model":"\a\\"model":"a"`, uint8(4))
	f.Fuzz(func(t *testing.T, body string, size uint8) {
		assert.Equal(t, rename("a", `"bcd"`, body, len(body)+1), rename("a", `"bcd"`, body, int(size)+1))
		if !strings.Contains(body, `\`) {
			assert.Equal(t, body, rename("a", `"a"`, body, int(size)+1))
		}
	})
}
