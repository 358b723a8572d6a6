//go:build system

package hermetic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// openDecisions is the metric of picks without an outcome.
const openDecisions = "fairlead_picker_decisions_open"

// withDecisions are the flags of a picker with the decision API.
func withDecisions(flags ...string) []string {
	return append(flags, "--decision-bind-address=127.0.0.1:0")
}

// decided is the answer to a pick.
type decided struct {
	ID        string `json:"id"`
	Endpoints []struct {
		Address string `json:"address"`
		Cached  int    `json:"cached_tokens"`
	} `json:"endpoints"`
	Model      string `json:"model"`
	OutcomeURL string `json:"outcome_url"`
}

// post makes a call to the decision API, and returns the status and the answer.
func (r *rig) post(url string, body any) (status int, answer []byte) {
	r.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(r.t, err)
	client := &http.Client{Transport: &http.Transport{}} // servers of other tests close the connections of the default one
	defer client.CloseIdleConnections()
	response, err := client.Post(url, "application/json", bytes.NewReader(text))
	require.NoError(r.t, err)
	answer, err = io.ReadAll(response.Body)
	require.NoError(r.t, err)
	require.NoError(r.t, response.Body.Close())
	return response.StatusCode, answer
}

// decide picks over HTTP.
func (r *rig) decide(query string, body object) decided {
	r.t.Helper()
	status, answer := r.post("http://"+r.address("decision-bind-address")+"/v1/pick"+query, body)
	require.Equal(r.t, http.StatusOK, status, string(answer))
	var d decided
	require.NoError(r.t, json.Unmarshal(answer, &d))
	return d
}

// ended reports the outcome of a pick.
func (r *rig) ended(d decided, report object) {
	r.t.Helper()
	report["id"] = d.ID
	status, answer := r.post(d.OutcomeURL, report)
	require.Equal(r.t, http.StatusNoContent, status, string(answer))
}

func completionOf(text string) object {
	body, _ := json.Marshal(object{"model": "m", "prompt": text, "stream": true})
	return object{"path": "/v1/completions", "body": string(body)}
}

// TestDecision_SamePromptSameServer has prompts of both forms. Each keeps its server, and the answer says what is cached there.
func TestDecision_SamePromptSameServer(t *testing.T) {
	t.Parallel()
	blocks := []string{}
	for i := range 100 {
		blocks = append(blocks, fmt.Sprintf("%x", i+1))
	}
	digest := func(model, salt string) object {
		return object{"model": model, "cache_salt": salt, "stream": true, "prompt_tokens": 1605, "prompt_blocks": blocks}
	}
	r := start(t, world{pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, flags: withDecisions(), config: byPrefix})
	for name, body := range map[string]object{"text": completionOf(strings.Repeat("the same words again and again. ", 200)), "digest": digest("m", "")} {
		first := r.decide("", body)
		require.Len(t, first.Endpoints, 3, name)
		assert.Zero(t, first.Endpoints[0].Cached, name)
		r.ended(first, object{"event": "completed", "completion_tokens": 3})
		for range 3 {
			again := r.decide("?n=1", body)
			require.Len(t, again.Endpoints, 1)
			assert.Equal(t, first.Endpoints[0].Address, again.Endpoints[0].Address, name)
			assert.GreaterOrEqual(t, again.Endpoints[0].Cached, 1584, name)
			r.ended(again, object{"event": "completed"})
		}
	}
	for _, other := range []object{digest("other", ""), digest("m", "tenant")} {
		d := r.decide("", other)
		assert.Zero(t, d.Endpoints[0].Cached, "models and salts share nothing")
		r.ended(d, object{"event": "completed"})
	}
	page := r.metrics()
	assert.Equal(t, 10.0, page.sum("fairlead_picker_decision_outcomes_total", "event", "completed"))
	assert.Equal(t, 10.0, page.sum("fairlead_picker_streams_total", "outcome", "completed"))
	assert.Zero(t, page.sum(openDecisions))
}

// TestDecision_RequestsThatNeverCome has picks of one client that claim long prompts and never send them: two of three servers. Their pages
// show that they have no requests, so that soon they get those of others again.
func TestDecision_RequestsThatNeverCome(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, flags: withDecisions("--decision-timeout=1h")})
	claimed := map[string]decided{}
	for len(claimed) < 2 {
		d := r.decide("?first_token=true", object{"model": "m", "stream": true, "prompt_tokens": 1 << 20})
		claimed[d.Endpoints[0].Address] = d
	}
	picked := func() bool {
		d := r.decide("", completionOf(fmt.Sprint(rand.Uint64())))
		r.ended(d, object{"event": "completed"})
		_, found := claimed[d.Endpoints[0].Address]
		return found
	}
	for range 20 {
		assert.False(t, picked(), "the third server is idle, as far as is known")
	}
	r.await(picked, "a pick of the servers that are idle, too")
	assert.Equal(t, 2.0, r.metrics().sum(openDecisions), "the outcomes may come")
	for _, d := range claimed {
		r.ended(d, object{"event": "aborted"})
	}
}

// TestDecision_AbortedPicks has a client that guesses the prompt of another one again and again, and aborts its picks.
func TestDecision_AbortedPicks(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, flags: withDecisions(), config: byPrefix})
	for range 3 {
		d := r.decide("", completionOf(strings.Repeat("a guess at the words of another client. ", 200)))
		for _, e := range d.Endpoints {
			assert.Zero(t, e.Cached)
		}
		r.ended(d, object{"event": "aborted"})
	}
}

// TestDecision_Fallback has a client whose first endpoint does not answer: the prompt is in the cache of the one that served.
func TestDecision_Fallback(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, flags: withDecisions("--eject-after=1", "--ejection-time=1m", "--ejection-time-max=1m"), config: byPrefix})
	body := completionOf(strings.Repeat("the same words again and again. ", 200))
	first := r.decide("", body)
	served := first.Endpoints[1].Address
	r.ended(first, object{"event": "completed", "endpoint": served})
	assert.Equal(t, 1.0, r.metrics().sum("fairlead_picker_ejections_total"), "the endpoint that did not answer")
	again := r.decide("", body)
	assert.Equal(t, served, again.Endpoints[0].Address)
	assert.Positive(t, again.Endpoints[0].Cached)
	r.ended(again, object{"event": "failed", "status": 502})
	assert.Equal(t, 1.0, r.metrics().sum("fairlead_picker_responses_total", "code", "502"))
}

// TestDecision_InFlight counts requests from the pick to the outcome.
func TestDecision_InFlight(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, flags: withDecisions(), config: byPrefix})
	one, two := r.decide("?first_token=true", completionOf("one")), r.decide("", completionOf("two"))
	assert.Equal(t, 2.0, r.metrics().sum(inFlight))
	assert.Equal(t, 2.0, r.metrics().sum(openDecisions))
	r.ended(one, object{"event": "first_token"})
	r.ended(one, object{"event": "aborted"})
	assert.Equal(t, 1.0, r.metrics().sum(inFlight))
	r.ended(two, object{"event": "aborted"})
	r.await(func() bool { return r.metrics().sum(inFlight) == 0 }, "a scrape shows that the request is not there")
}

// TestDecision_Rewrite tells the client which model to request.
func TestDecision_Rewrite(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: withDecisions(), config: byPrefix})
	for _, body := range []object{completionOf("x"), {"model": "m", "prompt_tokens": 3}} {
		body["headers"] = object{"X-LLM-D-Model-Name-Rewrite": "other"}
		d := r.decide("", body)
		assert.Equal(t, "other", d.Model)
		r.ended(d, object{"event": "completed"})
	}
}

// TestDecision_NoEndpoint says what the client of the load balancer should get.
func TestDecision_NoEndpoint(t *testing.T) {
	t.Parallel()
	r := start(t, world{flags: withDecisions()})
	status, answer := r.post("http://"+r.address("decision-bind-address")+"/v1/pick", completionOf("x"))
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, string(answer), `"reason":"rejected-no-endpoints"`)
}

// TestDecision_OneShareWithTheGateway has a client with the address of a gateway: what both have open counts for one limit.
func TestDecision_OneShareWithTheGateway(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: withDecisions("--max-streams=2"), config: byPrefix})
	d := r.decide("", completionOf("x"))
	one := r.ask(request{body: ofModel})
	one.picked()
	assert.Equal(t, exhausted("too many open requests"), r.ask(request{body: ofModel}).refused())
	status, answer := r.post("http://"+r.address("decision-bind-address")+"/v1/pick", completionOf("x"))
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Contains(t, string(answer), "too many open picks")
	page := r.metrics()
	assert.Equal(t, 2.0, page.sum("fairlead_picker_gateway_streams"))
	assert.Equal(t, 1.0, page.sum(openDecisions))
	assert.Equal(t, 1.0, page.sum("fairlead_picker_decisions_limited_total", "limit", "streams"))
	one.respond(response{})
	one.end()
	r.ended(d, object{"event": "completed"})
	r.ended(r.decide("", completionOf("x")), object{"event": "completed"})
}

// TestDecision_Drain takes outcomes after SIGTERM, and ends when it has all.
func TestDecision_Drain(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: withDecisions(), config: byPrefix})
	d := r.decide("", completionOf("x"))
	url := "http://" + r.address("decision-bind-address") + "/v1/pick"
	r.stop()
	r.await(func() bool {
		status, answer := r.post(url, completionOf("y"))
		if status == http.StatusOK { // it came before the signal
			var early decided
			require.NoError(t, json.Unmarshal(answer, &early))
			r.ended(early, object{"event": "completed"})
		}
		return status == http.StatusServiceUnavailable
	}, "it refuses picks")
	r.ended(d, object{"event": "completed"})
	<-r.stopped
	assert.Empty(t, r.logs.FilterMessage("Ended picks still without an outcome at the end of the drain").All())
}
