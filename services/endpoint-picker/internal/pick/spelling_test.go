package pick

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/test/apitest"
)

// hashed is what the picker knows of a prompt: hashes, and its estimated length.
type hashed struct {
	prefixes []uint64
	tokens   int
}

// hashedBody returns what a balancer that records prefixes knows of the prompt in a body.
func hashedBody(t *testing.T, r *rig, path, body string) hashed {
	t.Helper()
	rc := r.placed(t, api.Incoming{Path: path, Body: []byte(body)})
	return hashed{rc.Prefixes, rc.PromptTokens}
}

func TestEqualPromptsHaveEqualPrefixesHoweverTheyAreSpelled(t *testing.T) {
	t.Parallel()
	chinese, escaped := strings.Repeat("中文", 1500), strings.Repeat(`\u4e2d\u6587`, 1500)
	tool := func(text string) string {
		return `{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[` + text + `]}`
	}
	user := func(content string) string {
		return `{"model":"m","messages":[{"role":"user","content":` + content + `}]}`
	}
	system := func(system string) string {
		return `{"model":"m","system":` + system + `,"messages":[{"role":"user","content":"a"}]}`
	}
	calls := func(call string) string {
		return `{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[` + call + `]},{"role":"tool","tool_call_id":"1","content":"b"}]}`
	}
	arguments := func(text string) string {
		return calls(`{"id":"1","type":"function","function":{"name":"f","arguments":` + text + `}}`)
	}
	item := func(item string) string {
		return `{"model":"m","input":[{"role":"user","content":"a"},` + item + `,{"role":"user","content":"b"}]}`
	}
	tests := []struct {
		name, path string
		give       []string
	}{
		{name: "escapes", path: apitest.Chat, give: []string{user(`"` + chinese + `"`), user(`"` + escaped + `"`)}},
		{name: "escapes of a completion", path: apitest.Completions, give: []string{
			`{"model":"m","prompt":"` + chinese + ` <\"😀\"/>\n"}`, `{"model":"m","prompt":"` + escaped + ` \u003c\u0022\uD83D\ude00\"\/\u003E\u000a"}`,
		}},
		{name: "escapes of a salt", path: apitest.Chat, give: []string{
			`{"model":"m","cache_salt":"é","messages":[{"role":"user","content":"a"}]}`, `{"model":"m","cache_salt":"\u00e9","messages":[{"role":"user","content":"a"}]}`,
		}},
		{name: "escapes of a role", path: apitest.Chat, give: []string{user(`"a"`), `{"model":"m","messages":[{"role":"\u0075ser","content":"a"}]}`}},
		{name: "a text or parts", path: apitest.Chat, give: []string{
			user(`"hello"`), user(`["hello"]`), user(`[{"type":"text","text":"hello"}]`), user(`[{"text":"hello","type":"text"}]`), user(`{"text":"hello"}`),
			user(`[{"type":"text","text":"hel"},{"type":"text","text":"lo"}]`),
		}},
		{name: "the order of a message's keys", path: apitest.Chat, give: []string{
			`{"model":"m","messages":[{"role":"user","name":"n","content":"a"},{"role":"assistant","content":"b","tool_calls":[{"id":"1","type":"function"}]}]}`,
			`{"messages":[{"content":"a","name":"n","role":"user"},{"tool_calls":[ { "type" : "function" , "id":"1"}],"content":[{"text":"b","type":"text"}],"role":"assistant"}],"model":"m"}`,
		}},
		{name: "escaped keys in escaped keys of a message", path: apitest.Chat, give: []string{
			user(`"a","name":{"b":1,"c":2}`), user(`"a","\u006eame":{"\u0062":1,"\u0063":2}`), user(`"a","\u006eam\u0065":{"\u0063":2,"\u0062":1}`),
		}},
		{name: "null, empty and missing keys of a message", path: apitest.Chat, give: []string{
			user(`"a"`), `{"model":"m","messages":[{"role":"user","content":"a","tool_calls":[],"name":null,"refusal":"","audio":{}}]}`,
		}},
		{name: "tools", path: apitest.Chat, give: []string{
			tool(`{"type":"function","function":{"name":"é","parameters":{"type":"object","required":["a","b"]}}}`),
			tool(` { "function" : { "parameters": {"required":[ "a" , "b"],"type":"object"}, "name":"\u00e9" } , "\u0074ype":"function" } `),
			tool(`{"cache_control":{"type":"ephemeral"},"type":"function","function":{"name":"é","parameters":{"type":"object","required":["a","b"]}}}`),
		}},
		{name: "marks for caching", path: apitest.Messages, give: []string{
			system(`"be brief"`), system(`[{"type":"text","text":"be brief"}]`), system(`[{"type":"text","text":"be ","cache_control":{"type":"ephemeral"}},{"text":"brief"}]`),
			`{"model":"m","messages":[{"role":"user","content":[{"cache_control":{"type":"ephemeral"},"type":"text","text":"a"}]}],"system":[{"type":"text","text":"be "},{"type":"text","text":"brief","cache_control":{"type":"ephemeral"}}]}`,
		}},
		{name: "media", path: apitest.Chat, give: []string{
			user(`[{"type":"image_url","image_url":{"url":"https://a/b","detail":"low"}}]`), user(`[{"image_url": {"detail":"low", "url":"https:\/\/a\/b"}, "type":"image_url"}]`),
		}},
		{name: "sources", path: apitest.Messages, give: []string{
			user(`[{"type":"document","title":"t","source":{"type":"base64","data":"x/"}}]`), user(`[{"source":{"data":"x\/","type":"base64"},"title":"t","type":"document"}]`),
		}},
		{name: "results of tools", path: apitest.Messages, give: []string{
			user(`[{"type":"tool_result","tool_use_id":"1","content":"ok"}]`), user(`[{"content":[{"type":"text","text":"ok"}],"tool_use_id":"1","type":"tool_result"}]`),
		}},
		{name: "input of a user", path: apitest.Responses, give: []string{
			`{"model":"m","input":"hello"}`, `{"model":"m","input":[{"role":"user","content":"hello"}]}`,
			`{"input":[{"type":"message","content":[{"type":"input_text","text":"hello"}],"role":"user"}],"model":"m"}`,
		}},
		{name: "token ids", path: apitest.Completions, give: []string{`{"model":"m","prompt":[1,22]}`, `{"prompt" : [ 1 , 22 ] , "model" : "m"}`}},
		{name: "attribution", path: apitest.Messages, give: []string{
			system(`"be brief"`), system(`"x-anthropic-billing-header: cch=1;\nbe brief"`), system(`"x-anthropic-billing-header: cch=\u00e9;\nbe brief"`),
			system(`[{"type":"text","text":"x-anthropic-billing-header: cch=2; more"},{"type":"text","text":"be brief"}]`),
			system(`[{"text":"x-anthropic-billing-header:\nall of the block","type":"text"},{"type":"text","text":"be brief"}]`),
		}},
		{name: "attribution with escapes", path: apitest.Messages, give: []string{
			system(`"be brief"`), system(`"x-anthropic-billing-header: cch=1;\u000abe brief"`), system(`"x-anthropic-billing-header: c:\\new \u000Abe brief"`),
			system(`"\u0078-anthropic-billing-heade\u0072: 1\nbe brief"`), system(`[{"type":"text","text":"\u0078-anthropic-billing-header: z"},{"type":"text","text":"be brief"}]`),
		}},
		{name: "arguments of a call", path: apitest.Chat, give: []string{
			arguments(`"{\"a\":1,\"b\":[\"c\",{\"d\":\"é\\n\"}]}"`), arguments(`"{\"a\": 1, \"b\": [\"c\", {\"d\": \"\\u00e9\\u000a\"}]}"`),
			arguments(`" {\n  \"b\" : [ \"c\" , { \"d\" : \"\u00e9\\n\" } ] , \"\\u0061\" : 1 } "`), arguments(`{"a":1,"b":["c",{"d":"é\n"}]}`),
			arguments(`"\u007b\u0022a\u0022:1,\u0022b\u0022:[\u0022c\u0022,{\u0022d\u0022:\u0022é\\n\u0022}]}"`),
		}},
		{name: "no arguments", path: apitest.Chat, give: []string{arguments(`"{}"`), arguments(`"{ }"`), arguments(`""`), arguments(`{}`)}},
		{name: "arguments that are no object", path: apitest.Chat, give: []string{arguments(`"{\"é"`), arguments(`"{\u0022\u00e9"`)}},
		{name: "members of a call", path: apitest.Chat, give: []string{
			calls(`{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}`), calls(`{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}`),
			calls(`{"type":"function","id":"1","index":null,"extra":null,"function":{"arguments":"{}","output":null,"name":"f"}}`),
		}},
		{name: "nulls of a tool", path: apitest.Chat, give: []string{
			tool(`{"type":"function","function":{"name":"f","parameters":{"type":"object","default":null}}}`),
			tool(`{"type":"function","strict":null,"function":{"description":null,"strict":null,"name":"f","parameters":{"type":"object","default":null}}}`),
		}},
		{name: "nulls of a tool of Anthropic's API", path: apitest.Messages, give: []string{tool(`{"name":"f","input_schema":{}}`), tool(`{"type":null,"name":"f","input_schema":{},"cache_control":null}`)}},
		{name: "numbers", path: apitest.Chat, give: []string{tool(`{"minimum":1e2}`), tool(`{"minimum":100.0}`), tool(`{"minimum":1.0E+2}`), tool(`{"minimum":0.1e3}`)}},
		{name: "addresses of images", path: apitest.Chat, give: []string{
			user(`[{"type":"image_url","image_url":{"url":"https://a/b"}},{"type":"text","text":"c"}]`), user(`[{"type":"image_url","image_url":"https://a/b"},{"type":"text","text":"c"}]`),
			user(`[{"type":"image_url","image_url":{"detail":"auto","url":"https:\/\/a/b"}},"c"]`), user(`[{"uuid":null,"image_url":{"url":"https://a/b","detail":null}},{"text":"c"}]`),
			user(`[{"type":"input_image","image_url":"https://a/b","detail":"auto"},{"type":"input_text","text":"c"}]`),
		}},
		{name: "nulls of a source", path: apitest.Messages, give: []string{
			user(`[{"type":"image","source":{"type":"url","url":"https://a/b"}}]`), user(`[{"type":"image","source":{"media_type":null,"type":"url","url":"https://a/b"}}]`),
		}},
		{name: "keys of a message that come again", path: apitest.Chat, give: []string{
			user(`"hello"`), user(`"zzz zzz","content":"hello"`), user(`["zzz",{"type":"image_url","image_url":"u"}],"content":null,"content":"hello"`),
			`{"model":"m","messages":[{"role":"assistant","role":"user","content":"hello"}]}`, `{"model":"m","messages":[{"content":"x","role":"assistant","content":"hello","role":"user"}]}`,
		}},
		{name: "items of the responses API", path: apitest.Responses, give: []string{
			item(`{"role":"assistant","content":"c"}`), item(`{"id":"msg_1","status":"completed","type":"message","role":"assistant","content":"c"}`),
			item(`{"role":"assistant","content":[{"type":"output_text","text":"c","annotations":[{"type":"url_citation","url":"u"}],"logprobs":[{"token":"c"}]}]}`),
		}},
		{name: "calls of the responses API", path: apitest.Responses, give: []string{
			item(`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"}`), item(`{"id":"fc_1","status":"completed","type":"function_call","name":"f","call_id":"c","arguments":"{ \"a\": 1 }"}`),
		}},
		{name: "attribution in a system message", path: apitest.Chat, give: []string{
			`{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":"a"}]}`,
			`{"model":"m","messages":[{"role":"system","content":"x-anthropic-billing-header: 1\nbe brief"},{"role":"user","content":"a"}]}`,
			`{"model":"m","messages":[{"content":"x-anthropic-billing-header: 1\nbe brief","role":"system"},{"role":"user","content":"a"}]}`,
			`{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"x-anthropic-billing-header: 2"},{"type":"text","text":"be brief"}]},{"role":"user","content":"a"}]}`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
			r.params.Options.Prefixes = true
			want := hashedBody(t, r, tt.path, tt.give[0])
			assert.Len(t, want.prefixes, want.tokens/512+1)
			for _, give := range tt.give[1:] {
				assert.Equal(t, want, hashedBody(t, r, tt.path, give), "%.200s", give)
			}
		})
	}
}

func TestDifferentPromptsHaveDifferentPrefixes(t *testing.T) {
	t.Parallel()
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
	r.params.Options.Prefixes = true
	seen := map[string]string{}
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"a"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"b"}]}`,
		`{"model":"m","messages":[{"role":"system","content":"a"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a","name":"b"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a","name":"c"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a","b":"name"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a","name":"b","label":"c"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a","name":"c","label":"b"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"a":1,"b":2}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"a":2,"b":1}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"a":1},{"b":2}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"b":2},{"a":1}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"a":["1","2"]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"a":["2","1"]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"a":["2",1]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"cache_salt":"s"}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"minimum":100}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"minimum":100.0}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"minimum":1e999}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"minimum":2e999}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"parameters":{"default":null}}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"parameters":{"default":1}}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"parameters":{"index":1}}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a","id":"1"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a","status":"1"}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"text":"a","image_url":"u"}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"text":"a","image_url":"v"}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"text":"a","image_url":{"url":"u","detail":"low"}}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"text":"a","image_url":{"url":"u","detail":"high"}}]}]}`,
		`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"{\"a\":1}"}}]}]}`,
		`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"{\"a\":\"1\"}"}}]}]}`,
		`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"{\"a\":\"{\\\"b\\\":1}\"}"}}]}]}`,
		`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"{\"a\":\"{\\\"b\\\": 1}\"}"}}]}]}`,
		`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"{\"a\":1,\"b\":null}"}}]}]}`,
		`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"{\"a\":1,\"index\":0}"}}]}]}`,
		`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"{\"a\":1,\"cache_control\":0}"}}]}]}`,
		`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"{\"a\":1} x"}}]}]}`,
		`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"[1]"}}]}]}`,
		`{"model":"m","messages":[{"tool_calls":[{"function":{"arguments":"[ 1]"}}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"x-anthropic-billing-header: 1\nof a user"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"x-anthropic-billing-header: 2\nof a user"}]}`,
	} {
		got := fmt.Sprint(hashedBody(t, r, apitest.Chat, body).prefixes)
		assert.Empty(t, seen[got], body)
		seen[got] = body
	}
}

// turnAfter is the request of one turn of a conversation. Its first system block changes with each request.
func turnAfter(first string, conversation, answers int) api.Incoming {
	var messages strings.Builder
	for i := range answers {
		fmt.Fprintf(&messages, `{"role":"user","content":"question %d of conversation %d: %s"},{"role":"assistant","content":"%s"},`,
			i, conversation, strings.Repeat("why ", 100), strings.Repeat("because ", 50))
	}
	body := fmt.Sprintf(`{"model":"m","stream":true,"system":[%s{"type":"text","text":"You are conversation %d. %s"}],"messages":[%s{"role":"user","content":"next"}]}`,
		first, conversation, strings.Repeat("Be brief. ", 200), messages.String())
	return api.Incoming{Path: apitest.Messages, Body: []byte(body)}
}

func TestConversationStaysThoughItsFirstSystemBlockChanges(t *testing.T) {
	t.Parallel()
	const conversations, turns = 8, 6
	estimator := estimate.New(prefixindex.NewMemoryBudget(1 << 20))
	snapshot := &pool.Snapshot{}
	for _, address := range []string{"10.0.0.1:8000", "10.0.0.2:8000"} {
		d := endpoint.Description{Identity: endpoint.Identity{Pod: address, Address: netip.MustParseAddrPort(address)}}
		snapshot.Endpoints = append(snapshot.Endpoints, estimator.NewEndpoint(d, noon))
	}
	b, homes, stayed := newSoonestFirst(snapshot, estimator), map[int]string{}, 0
	for i := range turns {
		for c := range conversations {
			attribution := fmt.Sprintf(`{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=%x;"},`, 7919*(i*conversations+c))
			rc := b.placed(t, turnAfter(attribution, c, i))
			if i == 0 {
				homes[c] = rc.Destination
			} else if rc.Destination == homes[c] {
				stayed++
			}
			rc.OnResponseHeaders(&request.ResponseHeaders{Status: 200, Events: true})
			rc.OnFirstToken(noon)
			rc.OnResponseEnd()
			rc.EndRequest(nil)
		}
	}
	assert.Equal(t, conversations*(turns-1), stayed)
}
