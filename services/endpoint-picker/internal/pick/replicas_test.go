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
)

// replica is a Balancer of a pool whose pages say that most of the requests are others'.
func replica() *Balancer {
	estimator, snapshot := estimate.New(prefixindex.NewMemoryBudget(1<<20)), &pool.Snapshot{}
	for i := range 8 {
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), 8000)
		e := estimator.NewEndpoint(endpoint.Description{Identity: endpoint.Identity{Pod: address.String(), Address: address}}, noon)
		e.RecordSample(e.StartScrape(noon), running(2))
		snapshot.Endpoints = append(snapshot.Endpoints, e)
	}
	return newSoonestFirst(snapshot, estimator)
}

// turn is what a conversation asks for after so many answers.
func turn(conversation, answers int) api.Incoming { return turnUnder("", conversation, answers) }

// turnUnder is the same where the conversation has a system prompt.
func turnUnder(system string, conversation, answers int) api.Incoming {
	said := func(role string, n int) string {
		return fmt.Sprintf(`{"role": %q, "content": %q}`, role, strings.Repeat(fmt.Sprint(role, conversation, "-", n, " "), 60))
	}
	messages := []string{fmt.Sprintf(`{"role": "system", "content": %q}`, system), said("user", 0)}
	for n := range answers {
		messages = append(messages, said("assistant", n), said("user", n+1))
	}
	body := `{"model": "m", "stream": true, "messages": [` + strings.Join(messages, ", ") + `]}`
	return api.Incoming{Path: "/v1/chat/completions", Body: []byte(body)}
}

func TestReplicasAgreeOnWhereAConversationIs(t *testing.T) {
	t.Parallel()
	a, b := replica(), replica()
	places := map[string]bool{}
	for conversation := range 30 {
		first, second, third := a.placed(t, turn(conversation, 0)), b.placed(t, turn(conversation, 1)), a.placed(t, turn(conversation, 2))
		if conversation > 10 { // before that they have not seen that conversations go on
			assert.Equal(t, first.Destination, second.Destination, "who has not seen it looks where it should be")
			assert.Zero(t, second.MatchedTokens)
			assert.Equal(t, first.Destination, third.Destination)
			assert.NotZero(t, third.MatchedTokens)
		}
		places[first.Destination] = true
		for _, rc := range []*request.Context{first, second, third} {
			rc.Placements.AnsweringLease().Release()
		}
	}
	assert.Greater(t, len(places), 4, "conversations are spread")
}
