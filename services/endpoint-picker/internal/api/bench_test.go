package api

import (
	"fmt"
	"strings"
	"testing"

	"fairlead.dev/services/endpoint-picker/test/apitest"
)

// BenchmarkParse reads bodies of about 67 kB: a long text, an agent with tools and calls of them, and texts in a script that some clients
// escape.
func BenchmarkParse(b *testing.B) {
	const size = 67_000
	chat := func(content string) string {
		return `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + content + `"}]}`
	}
	tool := `{"type":"function","function":{"name":"read_file","description":"Reads a file.\nFails if there is none.","parameters":{"type":"object",` +
		`"properties":{"path":{"type":"string","description":"absolute path of the file"},"limit":{"type":"integer"}},"required":["path"]}}},`
	call := `{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"read_file","arguments":"{\"path\": \"/etc/motd\"}"}}]},` +
		`{"role":"tool","tool_call_id":"call_1","content":"Welcome.\n\nThe system is up.\n"},`
	bodies := []struct{ name, body string }{
		{name: "text", body: chat(strings.Repeat("word ", size/5))},
		{name: "lines", body: chat(strings.Repeat(`a line of some words, as in prose\n`, size/35))},
		{name: "agent", body: fmt.Sprintf(`{"model":"m","stream":true,"tools":[%s{}],"messages":[{"role":"system","content":"Be brief."},%s{"role":"user","content":"Go on."}]}`,
			strings.Repeat(tool, size/2/len(tool)), strings.Repeat(call, size/2/len(call)))},
		{name: "UTF-8", body: chat(strings.Repeat("中文", size/6))},
		{name: "escaped", body: chat(strings.Repeat(`\u4e2d\u6587`, size/12))},
	}
	parsers := allParsers(b)
	for _, bb := range bodies {
		b.Run(bb.name, func(b *testing.B) {
			in := Incoming{Path: apitest.Chat, Body: []byte(bb.body)}
			b.SetBytes(int64(len(in.Body)))
			b.ReportAllocs()
			var r Request
			for b.Loop() {
				if err := r.ParseIncoming(parsers, in, enough); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
