//go:build system

package hermetic

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// upstreamConfig has the plugins that the llm-d router chooses by without a configuration, and adapters.
const upstreamConfig = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
flowControl: {noEndpointRequestTTL: 0s}
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: lora-affinity-scorer
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
  - {pluginRef: lora-affinity-scorer, weight: 1}
`

const passthroughConfig = upstreamConfig + `
requestHandler:
  parsers: [{pluginRef: passthrough-parser}]
`

const openAIConfig = upstreamConfig + `
requestHandler:
  parsers: [{pluginRef: openai-parser}]
`

const (
	ofModel   = `{"model": "my-model", "prompt": "test prompt", "max_tokens": 100, "temperature": 0}`
	ofAdapter = `{"model": "sql-lora", "prompt": "test prompt", "max_tokens": 100, "temperature": 0}`
)

// Refusals, as clients see them.
var (
	nobodyThere = refusal{
		status: 503, reason: "rejected-no-endpoints", retry: "1", text: "no ready endpoints in the pool; try again in 1 s",
	}
	nobodyAllowed = refusal{
		status: 503, reason: "rejected-no-endpoints", retry: "1",
		text: "no ready endpoint in the subset that the gateway allows; try again in 1 s",
	}
)

// completion is a response as vLLM makes it, cut in the middle.
var completion = []string{`{"id": "cmpl-1", "model": "my-mo`, `del", "choices": [{"text": "hi"}], "us`, `age": {"prompt_tokens": 7, "completion_tokens": 10, "total_tokens": 17}}`}

// unreadable is a request with a body that cannot be read, though a header asks for another model than that of the body.
func unreadable(body string) request {
	const header = "x-llm-d-model-name-rewrite"
	return request{body: body, headers: []string{header, "another"}, rules: envoytest.Rules{Remove: []string{header}}}
}

// The cases of upstream's hermetic suite whose request reaches a model server, or is refused. The model servers are those of
// the case, and it is the same wherever they are named.
func TestHTTP(t *testing.T) {
	t.Parallel()
	even := []string{pageOf(0, 0, 0.2, ""), pageOf(0, 0, 0.1, ""), pageOf(0, 0, 0.3, "")}
	full := []string{pageOf(60, 90, 0.98, ""), pageOf(50, 90, 0.97, ""), pageOf(70, 90, 0.99, "")}
	tests := []struct {
		name    string
		pages   []string
		config  string
		give    request
		answer  response
		want    int // the server
		refused refusal
	}{
		{
			name:   "1 the shorter queue and the emptier cache",
			pages:  []string{pageOf(3, 1, 0.2, ""), pageOf(0, 1, 0.1, ""), pageOf(10, 1, 0.2, "")},
			config: upstreamConfig, give: request{body: ofModel}, answer: response{pieces: completion}, want: 1,
		},
		{
			name:   "2 the adapter is active, and the queue short",
			pages:  []string{pageOf(0, 1, 0.2, "foo,bar"), pageOf(0, 1, 0.1, "foo,sql-lora"), pageOf(10, 1, 0.2, "foo,bar")},
			config: upstreamConfig, give: request{body: ofAdapter}, answer: response{pieces: completion}, want: 1,
		},
		{
			name:   "3 the adapter is active, though the cache is fuller",
			pages:  []string{pageOf(10, 1, 0.2, "a,b,c,d"), pageOf(10, 1, 0.4, "a,b,c,sql-lora"), pageOf(10, 1, 0.3, "a,b,c,d")},
			config: upstreamConfig, give: request{body: ofAdapter}, answer: response{pieces: completion}, want: 1,
		},
		{
			name: "4 a body that only the passthrough parser takes", pages: even, config: passthroughConfig,
			give: request{path: "/v1/completions", body: "no JSON"}, answer: response{pieces: []string{"nor this"}}, want: 1,
		},
		{
			name: "5 saturated, and not shed by default", pages: full, config: upstreamConfig,
			give: request{body: ofModel}, answer: response{pieces: completion}, want: 1,
		},
		{
			name: "6 invalid JSON", pages: even, config: openAIConfig, give: request{body: `{"model": "m`},
			refused: refusal{status: 400, text: "parse request body: at byte 12: unexpected end"},
		},
		{
			name: "7 a body in many pieces", pages: even, config: upstreamConfig, give: request{body: ofModel, chunk: 10}, answer: response{pieces: completion}, want: 1,
		},
		{name: "8 no model server", config: upstreamConfig, give: request{body: ofModel}, refused: nobodyThere},
		{
			name: "the server judges invalid JSON if the list of parsers is that of the default", pages: even, config: upstreamConfig,
			give: request{body: `{"model": "m`}, answer: response{pieces: []string{"no"}}, want: 1,
		},
		{
			name: "9 no model", pages: even, config: openAIConfig, give: request{body: `{"prompt": "x"}`},
			refused: refusal{status: 400, text: "parse request body: model not found in request body"},
		},
		{
			name: "13 a model that no object names", pages: even, config: upstreamConfig,
			give: request{body: `{"model": "nobody-knows", "prompt": "x"}`}, answer: response{pieces: completion}, want: 1,
		},
		{name: "15 headers alone", pages: even, config: upstreamConfig, give: request{path: "/v1/models"}, answer: response{pieces: []string{"{}"}}, want: 1},
		{
			name: "15b headers alone, and no model server", config: upstreamConfig, give: request{path: "/v1/models"}, refused: nobodyThere,
		},
		{
			name: "16 a response in many pieces", pages: even, config: upstreamConfig, give: request{body: ofModel},
			answer: response{pieces: strings.Split(strings.Join(completion, ""), "")}, want: 1,
		},
		{
			name: "17 a response that is no JSON", pages: even, config: upstreamConfig, give: request{body: ofModel},
			answer: response{pieces: []string{`{"usage": {"prompt_tokens": `, "no JSON"}}, want: 1,
		},
		{
			name: "18 the end is an empty piece", pages: even, config: upstreamConfig, give: request{body: ofModel, endApart: true},
			answer: response{pieces: append(append([]string{}, completion...), "")}, want: 1,
		},
		{
			name: "the end is delivered twice", pages: even, config: upstreamConfig, give: request{body: ofModel, chunk: 20, endTwice: true},
			answer: response{pieces: completion}, want: 1,
		},
		{
			name: "trailers on both sides", pages: even, config: upstreamConfig, give: request{body: ofModel, chunk: 20, trailers: true},
			answer: response{pieces: completion, trailers: true}, want: 1,
		},
		{
			name: "trailers without a body", pages: even, config: upstreamConfig, give: request{path: "/v1/models", trailers: true},
			answer: response{trailers: true}, want: 1,
		},
		{
			name: "a body of many chunks", pages: even, config: upstreamConfig,
			give:   request{body: `{"model": "m", "prompt": "` + strings.Repeat("long ", 60_000) + `"}`, chunk: 16 << 10},
			answer: response{pieces: []string{strings.Repeat("x", 150_000), strings.Repeat("y", 63_000)}}, want: 1,
		},
	}
	for _, tt := range tests {
		for _, m := range modes {
			t.Run(tt.name+" by "+string(m), func(t *testing.T) {
				t.Parallel()
				r := start(t, world{mode: m, pages: tt.pages, config: tt.config})
				s := r.ask(tt.give)
				if tt.refused.status != 0 {
					assert.Equal(t, tt.refused, s.refused())
					return
				}
				assert.Equal(t, r.at(tt.want), s.picked())
				s.respond(tt.answer)
				s.end()
			})
		}
	}
}

// TestBodiesThatServersJudge has bodies without a model, and others that the picker cannot read. Every listener places their requests,
// and the server gets them as they are.
func TestBodiesThatServersJudge(t *testing.T) {
	t.Parallel()
	const path, chat = "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	got := make(chan string, 1)
	r := startProxy(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: withDecisions()}, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		got <- string(body)
		_, _ = io.WriteString(w, `{"choices":[{}]}`)
	})
	for name, body := range map[string]string{
		"no model":          strings.Replace(chat, `"model":"m",`, "", 1),
		"null":              strings.Replace(chat, `"m"`, "null", 1),
		"an empty model":    strings.Replace(chat, `"m"`, `""`, 1),
		"a byte order mark": "\xef\xbb\xbf" + chat,
		"UTF-16":            "\xff\xfe" + strings.Join(strings.Split(chat, ""), "\x00") + "\x00",
		"NaN":               strings.Replace(chat, `"m"`, `"m","temperature":NaN`, 1),
		"compressed":        "\x1f\x8b\x08\x00",
	} {
		answer, _ := r.through(r.client(), path, body)
		require.Equal(t, http.StatusOK, answer.StatusCode, name)
		assert.Equal(t, body, <-got, name)
		r.serve(request{path: path, body: body}, response{pieces: completion})
		d := r.decide("", object{"path": path, "body_base64": []byte(body)})
		r.ended(d, object{"event": "completed"})
	}
}

// A request with a body has its length and its destination in the headers that go on, whatever the client said.
func TestHeadersOfTheModelServer(t *testing.T) {
	t.Parallel()
	private := []string{
		"x-prefiller-host-port", "x-encoder-hosts-ports", "x-data-parallel-host-port", "x-kv-cache-source-host-port",
		"x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id", "x-llm-d-inference-objective", "x-gateway-inference-objective",
		"x-llm-d-slo-ttft-ms", "x-slo-ttft-ms", "x-llm-d-slo-tpot-ms", "x-slo-tpot-ms",
		"x-gateway-destination-endpoint-served", "x-gateway-destination-endpoint-subset",
	}
	give := []string{
		"accept", "text/plain", "accept", "text/html", "x-gateway-destination-endpoint", "169.254.169.254:80",
		"x-gateway-destination-endpoint", "169.254.169.254:81", "content-length", "7", "x-request-id", "id-1", "x-prefiller-host-port", "10.9.9.9:1",
	}
	for _, name := range private {
		give = append(give, name, "10.9.9.9:1")
	}
	tests := []struct {
		name       string
		give       request
		wantLength string
		inMetadata bool // alone: there is no reply that could set headers
	}{
		{name: "with a body", give: request{body: ofModel}, wantLength: strconv.Itoa(len(ofModel))},
		{name: "without", give: request{path: "/v1/models"}, wantLength: "7"},
		{name: "buffered", give: request{body: ofModel, allModes: true, modes: both(buffered)}, wantLength: "7"},
		{name: "in pieces", give: request{body: ofModel, chunk: 9, allModes: true, modes: both(streamed)}, wantLength: "7"},
		{name: "not shown", give: request{body: ofModel, allModes: true, modes: both(noBody)}, wantLength: "7"},
		{name: "full duplex, trailers alone", give: request{trailers: true}, wantLength: "7"},
		{name: "buffered, trailers alone", give: request{trailers: true, allModes: true, modes: both(buffered)}, wantLength: "7", inMetadata: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
			tt.give.headers = give
			tt.give.rules.Remove = private
			s := r.ask(tt.give)
			got := s.gateway.RequestHeaders()
			want := envoytest.Fields{
				"accept": {"text/plain", "text/html"}, "x-gateway-destination-endpoint": {r.at(0)}, "content-length": {tt.wantLength},
				"x-request-id": {"id-1"}, "content-type": {"application/json"}, ":authority": {"models.example.com"},
				":method": got[":method"], ":path": got[":path"],
			}
			if tt.inMetadata {
				delete(want, "x-gateway-destination-endpoint")
			}
			assert.Equal(t, r.at(0), s.picked())
			assert.Equal(t, want, got)
			s.respond(response{pieces: []string{"{}"}})
			s.end()
		})
	}
}

func list(entries ...string) *structpb.Value {
	values := &structpb.ListValue{}
	for _, e := range entries {
		values.Values = append(values.Values, structpb.NewStringValue(e))
	}
	return structpb.NewListValue(values)
}

// Cases 10 to 12 of upstream's suite, and what upstream does not take: a string, IPv6, ports, and requests without a body.
func TestSubsets(t *testing.T) {
	t.Parallel()
	pages := []string{pageOf(5, 5, 0.5, ""), pageOf(0, 0, 0.1, ""), pageOf(9, 9, 0.9, "")}
	addresses := func(r *rig) (all, ips []string) {
		for _, s := range r.servers {
			all, ips = append(all, s.address.String()), append(ips, s.address.Addr().String())
		}
		return all, ips
	}
	tests := []struct {
		name string
		give func(all, ips []string) *structpb.Value
		want int
		none bool
	}{
		{name: "10 all of them", give: func(all, _ []string) *structpb.Value { return list(all...) }, want: 1},
		{name: "10 the best among them", give: func(all, _ []string) *structpb.Value { return list(all[1], all[2]) }, want: 1},
		{name: "11 without the best", give: func(all, _ []string) *structpb.Value { return list(all[0], all[2], "10.0.0.1:1") }, want: 0},
		{name: "11 only the worst", give: func(all, _ []string) *structpb.Value { return list(all[2]) }, want: 2},
		{name: "12 none of the pool", give: func(_, _ []string) *structpb.Value { return list("10.0.0.1:1") }, none: true},
		{name: "12 empty", give: func(_, _ []string) *structpb.Value { return list() }, none: true},
		{name: "an empty string", give: func(_, _ []string) *structpb.Value { return structpb.NewStringValue("") }, none: true},
		{name: "of another type", give: func(_, _ []string) *structpb.Value { return structpb.NewNumberValue(1) }, none: true},
		{name: "one string", give: func(all, _ []string) *structpb.Value { return structpb.NewStringValue(all[0] + ", " + all[2]) }, want: 0},
		{name: "addresses without ports", give: func(_, ips []string) *structpb.Value { return list(ips[2]) }, want: 2},
		{name: "another port", give: func(_, ips []string) *structpb.Value { return list(ips[2] + ":1") }, none: true},
	}
	for _, m := range modes {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			r := start(t, world{mode: m, pages: pages, config: upstreamConfig})
			for _, tt := range tests {
				for _, q := range []request{{body: ofModel}, {path: "/v1/models"}} {
					all, ips := addresses(r)
					q.subset = tt.give(all, ips)
					s := r.ask(q)
					if tt.none {
						assert.Equal(t, nobodyAllowed, s.refused(), tt.name)
						continue
					}
					assert.Equal(t, r.at(tt.want), s.picked(), tt.name)
					s.respond(response{pieces: []string{"{}"}})
					s.end()
				}
			}
		})
	}
}

func TestSubsetIgnoredIfSo(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: []string{"--disable-endpoint-subset-filter"}})
	assert.Equal(t, r.at(0), r.serve(request{body: ofModel, subset: list("10.0.0.1:1")}, response{}))
}

// Ports tell the servers of one pod apart.
func TestSubsetOfPorts(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
	first := r.servers[0].address
	l, err := net.Listen("tcp", netip.AddrPortFrom(first.Addr(), 0).String())
	require.NoError(t, err)
	other := serveModel(t, l, pageOf(9, 9, 0.9, "")).address.String()
	r.api.put(t, pathPools, "pool", poolObject(first.Port(), addressOf(l).Port()))
	r.await(func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 2 }, "both ports")
	for range 5 {
		assert.Equal(t, other, r.serve(request{body: ofModel, subset: list(other)}, response{}))
		assert.Equal(t, r.at(0), r.serve(request{body: ofModel, subset: list(r.at(0))}, response{}))
	}
	r.api.put(t, pathPools, "pool", poolObject(first.Port()))
	r.await(func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 1 }, "one port")
	assert.Equal(t, nobodyAllowed, r.ask(request{body: ofModel, subset: list(other)}).refused())
}

func TestSubsetOfIPv6(t *testing.T) {
	t.Parallel()
	r := start(t, world{mode: byFile, pages: []string{pageOf(0, 0, 0, "")}})
	six := listen6(t)
	r.servers = append(r.servers, serveModel(t, six, pageOf(9, 9, 0.9, "")))
	r.writeFile(nil)
	r.await(func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 2 }, "both")
	r.scraped()
	for _, subset := range []*structpb.Value{list(r.at(1)), list("::1"), list("[::1]"), structpb.NewStringValue(r.at(1))} {
		picked := r.serve(request{body: ofModel, subset: subset}, response{})
		assert.Equal(t, r.at(1), picked)
		assert.True(t, strings.HasPrefix(picked, "[::1]:"))
	}
}

// One pool of two data-parallel ranks, and lists for gateways that try again.
func TestFallbacks(t *testing.T) {
	t.Parallel()
	config := strings.Replace(upstreamConfig, "schedulingProfiles:", "- {type: max-score-picker, parameters: {maxNumOfEndpoints: 2}}\nschedulingProfiles:", 1) +
		"  - {pluginRef: max-score-picker}\n"
	r := start(t, world{pages: []string{pageOf(5, 5, 0.5, ""), pageOf(0, 0, 0.1, ""), pageOf(9, 9, 0.9, "")}, config: config})
	give := request{body: ofModel, rules: envoytest.Rules{Fallbacks: 1}}
	s := r.ask(give)
	assert.Equal(t, r.at(1)+","+r.at(0), s.picked())
	s.respond(response{served: r.at(0), pieces: completion})
	s.end()
	page := r.metrics()
	assert.Equal(t, 1.0, page.sum("fairlead_picker_responses_total", "served", "other"))
	require.Zero(t, page.sum("fairlead_picker_responses_total", "served", "picked"))
}
