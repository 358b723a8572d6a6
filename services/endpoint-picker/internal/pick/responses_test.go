package pick

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/test/apitest"
)

// respond has the picked server answer in pieces.
func respond(rc *request.Context, events bool, pieces ...string) {
	rc.OnResponseHeaders(&request.ResponseHeaders{Status: 200, Events: events})
	for _, piece := range pieces {
		rc.OnResponseChunk([]byte(piece))
	}
	rc.OnResponseEnd()
	rc.EndRequest(nil)
}

// storeResponses places requests whose servers store their responses. It returns the servers by the identifiers.
func storeResponses(t *testing.T, r *rig, n int) map[string]string {
	t.Helper()
	r.outliers.EXPECT().ObserveResponse(mock.Anything, mock.Anything).Maybe()
	servers := map[string]string{}
	for i := range n {
		id := fmt.Sprintf([]string{"resp_%032x", "6ba7b810-9dad-11d1-80b4-%012x", "%x"}[i%3], i)
		rc := r.placed(t, api.Incoming{Path: apitest.Responses, Body: []byte(`{"model":"m","input":"hello"}`)})
		servers[id] = rc.Destination
		if i%2 == 0 {
			respond(rc, false, `{"object":"response","id":"`, id+`"}`)
		} else {
			respond(rc, true, "event: response.created\ndata: {\"response\":{\"id\":\""+id+"\"},\"type\":\"response.created\"}\n\n")
		}
	}
	return servers
}

func TestRequestsThatNameAStoredResponseGoToItsServer(t *testing.T) {
	t.Parallel()
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000"), newEndpoint("10.0.0.3:8000")))
	servers := storeResponses(t, r, 40)
	used := map[string]bool{}
	for id, server := range servers {
		used[server] = true
		for _, in := range []api.Incoming{
			{Path: apitest.Responses, Body: []byte(`{"model":"m","input":"and then?","previous_response_id":"` + id + `"}`)},
			{Path: apitest.Responses, Body: []byte(`{"previous_response_id":"` + fmt.Sprintf(`\u%04x`, id[0]) + id[1:] + `","model":"m","input":[]}`)},
			{Path: "/v1/responses/compact", Body: []byte(`{"model":"m","previous_response_id":"` + id + `"}`)},
			{Path: "/v1/responses/input_tokens", Body: []byte(`{"model":"m","input":"a","previous_response_id":"` + id + `"}`)},
			{Path: "/v1/responses/" + id},
			{Path: "/openai/responses/" + id},
			{Path: "/anything/responses/" + id + "/cancel", Body: []byte(`{}`)},
			{Path: "/responses/v1/responses/" + id},
			{Path: "/models/v1/responses/" + id + "?stream=true"},
			{Path: "/v1/%72esponses/" + id + "/"},
			{Path: "/v1/responses/" + id + "/cancel", Body: []byte(`{}`)},
			{Path: "/v1/responses/" + id + "/input_items?limit=1"},
		} {
			rc := r.placed(t, in)
			assert.Equal(t, server, rc.Destination, "%s %s", in.Path, in.Body)
			rc.Placements.AnsweringLease().Release()
		}
	}
	assert.Greater(t, len(used), 1, "the responses are on several servers")
}

func TestStoredResponseOfAServerThatCannotBePicked(t *testing.T) {
	t.Parallel()
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000"), newEndpoint("10.0.0.2:8000")))
	for id, server := range storeResponses(t, r, 1) {
		other := map[string]string{"10.0.0.1:8000": "10.0.0.2:8000", "10.0.0.2:8000": "10.0.0.1:8000"}[server]
		rc := &request.Context{Input: request.PickInput{Incoming: api.Incoming{Path: "/v1/responses/" + id}, Subset: scheduling.ParseSubset([]string{other})}}
		require.Nil(t, r.decide(rc))
		assert.Equal(t, other, rc.Destination)

		left := newRig(t, snapshotOf(newEndpoint(other)))
		left.responses.addResponse(1, endpoint.Identity{UID: "of a pod that has gone"})
		assert.Equal(t, other, left.placed(t, api.Incoming{Path: "/v1/responses/" + id}).Destination)
	}
}

func TestOtherAnswersAreNotSearchedForIdentifiers(t *testing.T) {
	t.Parallel()
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
	for _, path := range []string{apitest.Chat, apitest.Messages, "/v1/responses/compact"} {
		assert.Nil(t, r.placed(t, api.Incoming{Path: path, Body: []byte(`{"model":"m"}`)}).ResponseID, path)
	}
}

func TestResponses_ForgetTheOldest(t *testing.T) {
	t.Parallel()
	var r storedResponses
	server := func(id uint64) endpoint.Identity { return endpoint.Identity{Pod: fmt.Sprint("pod-", id%3)} }
	const last = maxResponses + 100
	for id := uint64(1); id <= last; id++ {
		r.addResponse(id, server(id))
		r.addResponse(id, server(id)) // again
	}
	assert.Len(t, r.byID, maxResponses)
	assert.Len(t, r.order, maxResponses)
	for _, id := range []uint64{101, 102, last} {
		got, found := r.findServer(id)
		assert.True(t, found)
		assert.Equal(t, server(id), got)
	}
	for _, id := range []uint64{0, 1, 100, last + 1} {
		_, found := r.findServer(id)
		assert.False(t, found, id)
	}
}
