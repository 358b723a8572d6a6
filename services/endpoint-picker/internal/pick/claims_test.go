package pick

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/test/apitest"
)

func TestClaims(t *testing.T) {
	t.Parallel()
	var c promptClaims
	assert.Equal(t, 100, c.limitTokens(100, 1))
	assert.Equal(t, alwaysBelieved, c.limitTokens(16<<20, 1))
	answered := request.Record{PickRecord: request.PickRecord{PromptTokens: 300_000}, RequestBytes: 1 << 20, Status: 200}
	for _, change := range []func(r *request.Record){
		func(r *request.Record) { r.RequestBytes = 0 }, func(r *request.Record) { r.Status = 400 },
		func(r *request.Record) { r.PromptTokens = 10 },
	} {
		x := answered
		change(&x)
		c.learnLongest(&x)
		assert.Equal(t, alwaysBelieved, c.limitTokens(16<<20, 1))
	}
	c.learnLongest(&answered)
	assert.Equal(t, 300_000, c.limitTokens(16<<20, 1))
	assert.Equal(t, 200_000, c.limitTokens(200_000, 1))
	assert.Equal(t, 400_000, c.limitTokens(16<<20, 400_000))
}

// TestClaimedPromptIsLimited has short calls of the decision API that claim more than any prompt that was seen, and a long text.
func TestClaimedPromptIsLimited(t *testing.T) {
	t.Parallel()
	videos := []byte(`{"model":"m","text":"a","video_data":[` + strings.Repeat(`"",`, 1000) + `""]}`)
	text := []byte(`{"model":"m","prompt":"` + strings.Repeat("word ", alwaysBelieved) + `"}`)
	tests := []struct {
		name  string
		give  api.Incoming
		most  int
		blind bool
	}{
		{name: "a digest", give: api.Incoming{Digest: &api.Digest{Model: "m", Tokens: 16 << 20, Size: 1}}, most: alwaysBelieved, blind: true},
		{name: "media", give: api.Incoming{Path: apitest.SGLang, Body: videos}, most: alwaysBelieved, blind: true},
		{name: "media of a request that the picker carries", give: api.Incoming{Path: apitest.SGLang, Body: videos}, most: 1001*4500 + 1},
		{name: "a text", give: api.Incoming{Path: apitest.Completions, Body: text}, most: alwaysBelieved * 5 / 4, blind: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rc := &request.Context{Input: request.PickInput{Incoming: tt.give, Blind: tt.blind}}
			require.Nil(t, newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000"))).decide(rc))
			assert.InDelta(t, tt.most, rc.PromptTokens, 1)
		})
	}
}

// TestOnlyAnswersThatThePickerSeesRaiseTheLimit has a long prompt whose answer the picker carries, or is told of.
func TestOnlyAnswersThatThePickerSeesRaiseTheLimit(t *testing.T) {
	t.Parallel()
	body := []byte(`{"model":"m","prompt":"` + strings.Repeat("word ", 1000) + `"}`)
	for _, blind := range []bool{true, false} {
		b := newSoonestFirst(snapshotOf(newEndpoint("10.0.0.1:8000")), estimate.New(prefixindex.NewMemoryBudget(1<<20)))
		rc := &request.Context{Input: request.PickInput{Incoming: api.Incoming{Path: apitest.Completions, Body: body}, Blind: blind}}
		rc.RequestBytes = len(body)
		require.Nil(t, b.decide(rc))
		rc.OnResponseHeaders(&request.ResponseHeaders{Status: 200})
		rc.OnResponseEnd()
		rc.EndRequest(nil)
		assert.Equal(t, blind, b.promptClaims.longest.Load() == 0)
	}
}
