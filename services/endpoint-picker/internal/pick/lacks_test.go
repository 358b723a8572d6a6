package pick

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/test/apitest"
)

// TestRequestsForAModelThatOneServerLacks has three servers. One of them answers requests for one model with 404.
func TestRequestsForAModelThatOneServerLacks(t *testing.T) {
	t.Parallel()
	const without, requests = "10.0.0.2:8000", 60
	tests := []struct {
		name     string
		path     string
		response request.ResponseHeaders
		most     int // refusals
	}{
		{name: "chat", path: apitest.Chat, response: request.ResponseHeaders{Status: 404}, most: 2},
		{name: "a prefix before the path", path: "/openai" + apitest.Chat, response: request.ResponseHeaders{Status: 404}, most: 2},
		{name: "an unknown API", path: "/v1/rerank", response: request.ResponseHeaders{Status: 404}, most: 2},
		{name: "no path", response: request.ResponseHeaders{Status: 404}, most: 2},
		{name: "a redirect of an unknown API", path: "/v1/rerank", response: request.ResponseHeaders{Status: 302}, most: 10},
		{name: "a page of an unknown API", path: "/v1/rerank", response: request.ResponseHeaders{Status: 200, HTML: true}, most: 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, b, c := newEndpoint("10.0.0.1:8000"), newEndpoint(without), newEndpoint("10.0.0.3:8000")
			s := snapshotOf(a, b, c)
			r := newRig(t, s)
			detector := pool.NewDetector(pool.DefaultDetectorOptions(), zap.NewNop(), func(string) {}, clocktesting.NewFakePassiveClock(noon))
			detector.SetEndpoints(s.Endpoints)
			r.params.Outliers = detector
			refused := 0
			for i := range requests {
				for _, model := range []string{"base", "adapter"} {
					body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"%d %d"}]}`, model, i, i)
					rc := r.placed(t, api.Incoming{Path: tt.path, Body: []byte(body)})
					response := request.ResponseHeaders{Status: 200}
					if rc.Destination == without && model == "adapter" {
						response = tt.response
						refused++
					}
					rc.OnResponseHeaders(&response)
					rc.OnResponseChunk([]byte(`{"choices":[{}],"results":[{}]}`)) // an answer of each API
					rc.OnResponseEnd()
					rc.EndRequest(nil)
				}
			}
			assert.Positive(t, refused)
			assert.LessOrEqual(t, refused, tt.most)
			assert.False(t, b.Health().IsEjected(), "other requests go there")
		})
	}
}

// TestRefusalsThatSayNothingOfAModel has refusals with the status 404 that clients can choose.
func TestRefusalsThatSayNothingOfAModel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		in   api.Incoming
		want pool.Response // its signal, and whether the model is missing
	}{
		{name: "a model", in: api.Incoming{Path: apitest.Responses, Body: []byte(`{"model":"m","input":"a"}`)},
			want: pool.Response{Signal: request.Doubtful, ModelMissing: true}},
		{name: "a stored response", in: api.Incoming{Path: apitest.Responses,
			Body: []byte(`{"model":"m","input":"a","previous_response_id":"resp_1"}`)}, want: pool.Response{Signal: request.Steered}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint("10.0.0.1:8000")
			r := newRig(t, snapshotOf(e))
			r.outliers.EXPECT().ObserveResponse(e, mock.MatchedBy(func(got pool.Response) bool {
				return got.Signal == tt.want.Signal && got.ModelMissing == tt.want.ModelMissing && got.Model == "m"
			})).Once()
			rc := r.placed(t, tt.in)
			rc.PromptTokens, rc.MatchedTokens = 100, 90 // of a cached prompt
			rc.OnResponseHeaders(&request.ResponseHeaders{Status: 404})
			rc.OnResponseEnd()
			rc.EndRequest(nil)
		})
	}
}

// TestSpellingsOfAPathAreSubjects has paths that a server refuses though it has the model.
func TestSpellingsOfAPathAreSubjects(t *testing.T) {
	t.Parallel()
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
	seen := map[uint64]string{}
	for _, path := range []string{"/v1/chat/completions", "/x/chat/completions", "//v1/chat/completions", "/v1/./chat/completions", "/v1/chat/completions/"} {
		in := request.PickInput{Incoming: api.Incoming{Path: path + "?a=b", Body: []byte(`{"model":"m","messages":[]}`)}, ArrivalTime: noon}
		result, refusal := r.PlaceRequest(t.Context(), &in)
		require.Nil(t, refusal)
		subject := result.Pending.(*pickState).subject
		assert.Empty(t, seen[subject], path)
		seen[subject] = path
	}
}
