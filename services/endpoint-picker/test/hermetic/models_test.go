//go:build system

package hermetic

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// rewriteTo is an InferenceModelRewrite of one model.
func rewriteTo(model string, targets ...object) object {
	return object{"spec": object{
		"poolRef": object{"name": "pool"},
		"rules":   []object{{"matches": []object{{"model": object{"value": model}}}, "targets": targets}},
	}}
}

// objective is an InferenceObjective.
func objective(priority int) object {
	return object{"spec": object{"poolRef": object{"name": "pool"}, "priority": priority}}
}

const (
	asked     = `{"prompt": "x", "model" : "chat", "stream": true}`
	asTarget  = `{"prompt": "x", "model" : "chat-v2-of-a-longer-name", "stream": true}`
	jsonThere = `{"id": "1", "model": "chat-v2-of-a-longer-name", "choices": [{"text": "\"model\": \"chat-v2-of-a-longer-name\""}], "usage": {"prompt_tokens": 1}}`
	jsonBack  = `{"id": "1", "model": "chat", "choices": [{"text": "\"model\": \"chat-v2-of-a-longer-name\""}], "usage": {"prompt_tokens": 1}}`
	sseThere  = "data: {\"model\":\"chat-v2-of-a-longer-name\",\"n\":1}\n\ndata: {\"model\": \"chat-v2-of-a-longer-name\",\"n\":2}\n\ndata: [DONE]\n\n"
	sseBack   = "data: {\"model\":\"chat\",\"n\":1}\n\ndata: {\"model\": \"chat\",\"n\":2}\n\ndata: [DONE]\n\n"
)

func rewriting(t *testing.T) *rig {
	t.Helper()
	return start(t, world{
		pages:   []string{pageOf(0, 0, 0, "")},
		objects: map[string]map[string]object{pathRewrites: {"canary": rewriteTo("chat", object{"modelRewrite": "chat-v2-of-a-longer-name"})}},
	})
}

// Case 14 of upstream's suite, in all modes of bodies. A gateway that does not show a body gets it as it is.
func TestModelIsRewrittenAndRestored(t *testing.T) {
	t.Parallel()
	r := rewriting(t)
	length := []string{"content-type", "application/json", "content-length", fmt.Sprint(len(jsonThere))}
	tests := []struct {
		name             string
		give             request
		upstream, client string
		answer           response
	}{
		{
			name: "full duplex", give: request{body: asked, chunk: 7}, upstream: asTarget, client: jsonBack,
			answer: response{headers: length, pieces: []string{jsonThere}},
		},
		{
			name: "whole, the response in pieces", give: request{body: asked, allModes: true, modes: [2]bodyMode{buffered, streamed}}, upstream: asTarget, client: jsonBack,
			answer: response{headers: length, pieces: strings.SplitAfter(jsonThere, ":")},
		},
		{
			name: "whole", give: request{body: asked, allModes: true, modes: both(buffered)}, upstream: asTarget, client: jsonBack,
			answer: response{headers: length, pieces: []string{jsonThere}},
		},
		{
			name: "whole, the response not shown", give: request{body: asked, allModes: true, modes: [2]bodyMode{buffered, noBody}}, upstream: asTarget,
			answer: response{headers: length},
		},
		{
			name: "in pieces, which go on before the model is known", give: request{body: asked, chunk: 7, allModes: true, modes: both(streamed)},
			answer: response{headers: length, pieces: []string{jsonThere}},
		},
		{name: "not shown", give: request{body: asked, allModes: true, modes: both(noBody)}, answer: response{headers: length}},
		{
			name: "compressed, which cannot be read", give: request{body: asked}, upstream: asTarget,
			answer: response{headers: append([]string{"content-encoding", "gzip"}, length...), pieces: []string{jsonThere}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.give.headers = []string{"accept-encoding", "gzip"}
			if tt.upstream != "" {
				tt.give.rules = envoytest.Rules{Upstream: []byte(tt.upstream), Remove: []string{"accept-encoding"}}
			}
			if tt.client != "" {
				tt.give.rules.Client = []byte(tt.client)
			}
			s := r.ask(tt.give)
			assert.Equal(t, tt.upstream != "", s.gateway.RequestHeaders()["accept-encoding"] == nil)
			s.respond(tt.answer)
			s.end()
			assert.Equal(t, tt.client != "", s.gateway.ResponseHeaders()["content-length"] == nil)
		})
	}
	page := r.metrics()
	assert.Equal(t, 5.0, page.sum("llm_d_epp_model_rewrite_decisions_total", "model_rewrite_name", "canary", "model_name", "chat", "target_model", "chat-v2-of-a-longer-name"))
	assert.Equal(t, 5.0, page.sum("llm_d_epp_request_total", "model_name", "chat", "target_model_name", "chat-v2-of-a-longer-name"))
}

// The name is found wherever the pieces of a response are cut.
func TestModelIsRestoredOverEveryCut(t *testing.T) {
	t.Parallel()
	r := rewriting(t)
	serve := func(back string, trailers bool, pieces ...string) {
		r.serve(request{body: asked, rules: envoytest.Rules{Upstream: []byte(asTarget), Client: []byte(back), Remove: []string{"accept-encoding"}}},
			response{headers: []string{"content-type", "text/event-stream"}, pieces: pieces, trailers: trailers})
	}
	for there, back := range map[string]string{sseThere: sseBack, jsonThere: jsonBack} {
		for at := range len(there) {
			serve(back, at%2 == 0, there[:at], there[at:])
		}
		serve(back, false, strings.Split(there, "")...)
		serve(back, true, strings.Split(there, "")...)
		serve(back, false, there, "")
	}
}

// A header names the model before any object does, and does not go on.
func TestModelOfAHeader(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"} {
		for _, m := range modes {
			r := start(t, world{mode: m, pages: []string{pageOf(0, 0, 0, "")}})
			s := r.ask(request{
				body: asked, headers: []string{name, "chat-v2-of-a-longer-name"},
				rules: envoytest.Rules{Upstream: []byte(asTarget), Client: []byte(jsonBack), Remove: []string{name, "accept-encoding"}},
			})
			assert.NotContains(t, s.gateway.RequestHeaders(), name)
			s.respond(response{pieces: []string{jsonThere}})
			s.end()
		}
	}
}

// A target without a weight beside others that have one gets its share.
func TestTargetWithoutAWeightDoesNotStarve(t *testing.T) {
	t.Parallel()
	r := start(t, world{
		pages: []string{pageOf(0, 0, 0, "")},
		objects: map[string]map[string]object{pathRewrites: {"split": rewriteTo("chat",
			object{"modelRewrite": "a", "weight": 1}, object{"modelRewrite": "b", "weight": 1}, object{"modelRewrite": "c"}, object{"modelRewrite": "d", "weight": 0})}},
	})
	sent := map[string]int{}
	for range 120 {
		s := r.ask(request{body: asked, rules: envoytest.Rules{Free: true, Remove: []string{"accept-encoding"}}})
		_, target, found := strings.Cut(s.gateway.UpstreamBody(), `"model" : "`)
		require.True(t, found)
		sent[target[:1]]++
		s.end()
	}
	assert.Equal(t, 120, sent["a"]+sent["b"]+sent["c"])
	for _, target := range []string{"a", "b", "c"} {
		assert.Greater(t, sent[target], 15, "a third, about: %v", sent)
	}
	assert.Zero(t, sent["d"])
}

// Objectives: who may wait is refused when the pool is full, with what clients need to know; nobody else is.
func TestShedding(t *testing.T) {
	t.Parallel()
	full, room := pageOf(20, 90, 0.95, ""), pageOf(0, 1, 0.1, "")
	r := start(t, world{
		pages:   []string{full, full},
		objects: map[string]map[string]object{pathObjectives: {"batch": objective(-1), "normal": objective(0), "urgent": objective(7)}},
	})
	tests := []struct {
		name, header, objective, priority string
		shed                              bool
	}{
		{name: "none", priority: "0"},
		{name: "normal", header: "x-llm-d-inference-objective", objective: "normal", priority: "0"},
		{name: "urgent", header: "x-llm-d-inference-objective", objective: "urgent", priority: "7"},
		{name: "unknown", header: "x-llm-d-inference-objective", objective: "unknown", priority: "0"},
		{name: "can wait", header: "x-llm-d-inference-objective", objective: "batch", shed: true},
		{name: "can wait, in the older header", header: "x-gateway-inference-objective", objective: "batch", shed: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := request{body: ofModel}
			if tt.header != "" {
				q.headers, q.rules.Remove = []string{tt.header, tt.objective}, []string{tt.header}
			}
			if s := r.ask(q); tt.shed {
				assert.Equal(t, refusal{
					status: 429, reason: "rejected-saturated", retry: "1",
					text: "the pool is saturated, and the request has a negative priority; try again in 1 s",
				}, s.refused())
			} else {
				s.respond(response{pieces: completion})
				s.end()
			}
		})
	}
	page := r.metrics()
	assert.Equal(t, 3.0, page.sum("llm_d_epp_request_total", "priority", "0"))
	assert.Equal(t, 1.0, page.sum("llm_d_epp_request_total", "priority", "7"))
	assert.Equal(t, 2.0, page.sum("llm_d_epp_request_error_total", "priority", "-1"))
	assert.Zero(t, page.sum("llm_d_epp_request_total", "priority", "-1"))

	r.servers[1].show(room)
	r.servers[0].show(room)
	r.scraped()
	r.serve(request{
		body: ofModel, headers: []string{"x-llm-d-inference-objective", "batch"}, rules: envoytest.Rules{Remove: []string{"x-llm-d-inference-objective"}},
	}, response{})
}
