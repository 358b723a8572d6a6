//go:build system

package hermetic

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// After a fallback the load and the backlog of a request are those of the server that serves it.
func TestLoadOfAFallback(t *testing.T) {
	t.Parallel()
	config := strings.Replace(upstreamConfig, "schedulingProfiles:", "- {type: max-score-picker, parameters: {maxNumOfEndpoints: 2}}\nschedulingProfiles:", 1) +
		"  - {pluginRef: max-score-picker}\n"
	r := start(t, world{pages: []string{pageOf(5, 5, 0.5, ""), pageOf(0, 0, 0.1, "")}, config: config, flags: []string{"--report-endpoint"}})
	const picked = "x-fairlead-picked-endpoint"
	s := r.ask(request{
		body:  `{"model":"m","prompt":"` + strings.Repeat("long ", 400) + `","stream":true}`,
		rules: envoytest.Rules{Fallbacks: 1, Reply: []string{picked}},
	})
	assert.Equal(t, r.at(1)+","+r.at(0), s.picked())
	counted := func(name string) [2]bool {
		page := r.metrics()
		return [2]bool{page.sum(name, "endpoint", r.at(0)) > 0, page.sum(name, "endpoint", r.at(1)) > 0}
	}
	assert.Equal(t, [2]bool{false, true}, counted(inFlight))
	s.begin(response{served: r.at(0), headers: []string{"content-type", "text/event-stream"}, pieces: []string{"x"}})
	assert.Equal(t, []string{r.at(1)}, s.gateway.ResponseHeaders()[picked], "the pick is what it was")
	assert.Equal(t, [2]bool{true, false}, counted(inFlight))
	assert.Equal(t, [2]bool{true, false}, counted("fairlead_picker_endpoint_prompt_tokens_owed"))
	s.piece("data: {\"choices\":[{\"text\":\"a\"}]}\n\n", false)
	s.answered()
	assert.Equal(t, [2]bool{}, counted("fairlead_picker_endpoint_prompt_tokens_owed"), "its first token has come")
	assert.Equal(t, [2]bool{true, false}, counted(inFlight))
	s.piece("", true)
	s.answered()
	s.end()
}

// The first prompts of a model have the tokens that its server makes of a text, not one for each four bytes. Their answers have no usage.
func TestTokensOfTheFirstPrompts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		flags []string
		want  float64 // tokens for each four bytes
	}{{"asked", nil, 2}, {"not asked", []string{"--probe-tokenizers=false"}, 1}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}, flags: tt.flags})
			r.servers[0].tokens(2048) // of 4 KiB
			r.servers[0].show(strings.ReplaceAll(pageOf(0, 0, 0, ""), `"m"`, `"n"`))
			r.scraped()
			prompts := 0
			r.await(func() bool {
				prompts++
				s := r.ask(request{body: fmt.Sprintf(`{"model":"n","prompt":"%08d%s","stream":true}`, prompts, strings.Repeat("word", 998))})
				tokens := r.metrics().sum("fairlead_picker_endpoint_prompt_tokens_owed")
				s.respond(response{pieces: []string{"data: {\"choices\":[{\"text\":\"a\"}]}\n\n"}})
				s.end()
				return math.Abs(tokens/1000-tt.want) < 0.1
			}, "%g tokens for each four bytes", tt.want)
		})
	}
}

// One page with a wild number has no effect once the next page is right.
func TestOneWrongPage(t *testing.T) {
	t.Parallel()
	good := pageOf(0, 0, 0, "")
	r := start(t, world{pages: []string{good, good}, flags: []string{"--explain"}})
	waits := func() (seconds []float64) {
		s := r.ask(request{body: `{"model":"m","prompt":"x","stream":true}`, rules: envoytest.Rules{Reply: []string{explained}}})
		s.respond(response{pieces: completion})
		text := s.gateway.ResponseHeaders()[explained][0]
		s.end()
		for _, wait := range regexp.MustCompile(`wait=([0-9.]+)s`).FindAllStringSubmatch(text, -1) {
			value, err := strconv.ParseFloat(wait[1], 64)
			require.NoError(t, err)
			seconds = append(seconds, value)
		}
		return seconds
	}
	r.servers[0].show(pageOf(1_000_000, 0, 0, ""))
	r.scraped()
	assert.Greater(t, slices.Max(waits()), 1.0, "the queue counts while it is on the page")
	r.servers[0].show(good)
	r.scraped()
	after := waits()
	assert.Len(t, after, 2)
	assert.Less(t, slices.Max(after), 0.5)
}

// A gateway that closes streams early must not leave load behind where nothing is scraped.
func TestAbandonedLeasesWithoutScrapes(t *testing.T) {
	t.Parallel()
	r := build(t, world{
		pages: []string{pageOf(0, 0, 0, "")}, config: upstreamConfig + "dataLayer: {injectDefaults: false}\n", flags: []string{"--lease-timeout=100ms"},
	})
	r.await(func() bool { return r.get(r.health(), "/readyz") == "ok\n" }, "ready")
	r.await(func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == 1 }, "its endpoint is there")
	for range 10 {
		r.ask(request{body: ofModel}).end()
	}
	assert.Zero(t, r.servers[0].asked(), "nothing is scraped")
	r.settle()
}
