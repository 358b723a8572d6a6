package balancer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/datastore"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/predict"
	"fairlead.dev/services/endpoint-picker/internal/prefix"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// replica is a Balancer of a pool whose pages say that most of the requests are others'.
func replica() *Balancer {
	learner, prefixes, traffic := predict.NewLearner(), prefix.NewIndex(1<<20), &endpoint.Traffic{}
	factory, snapshot := endpoint.NewFactory(learner, prefixes, traffic), &datastore.Snapshot{}
	for i := range 8 {
		address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), 8000)
		e := factory.New(endpoint.Description{Identity: endpoint.Identity{Pod: address.String(), Address: address}}, noon)
		e.Record(e.BeginScrape(noon), running(2))
		snapshot.Endpoints = append(snapshot.Endpoints, e)
	}
	return newSoonestFirst(snapshot, learner, prefixes, traffic)
}

// turn is what a conversation asks for after so many answers.
func turn(conversation, answers int) request.Incoming { return turnUnder("", conversation, answers) }

// turnUnder is the same where the conversation has a system prompt.
func turnUnder(system string, conversation, answers int) request.Incoming {
	said := func(role string, n int) string {
		return fmt.Sprintf(`{"role": %q, "content": %q}`, role, strings.Repeat(fmt.Sprint(role, conversation, "-", n, " "), 60))
	}
	messages := []string{fmt.Sprintf(`{"role": "system", "content": %q}`, system), said("user", 0)}
	for n := range answers {
		messages = append(messages, said("assistant", n), said("user", n+1))
	}
	body := `{"model": "m", "stream": true, "messages": [` + strings.Join(messages, ", ") + `]}`
	return request.Incoming{Path: "/v1/chat/completions", Body: []byte(body)}
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
		for _, x := range []*exchange.Exchange{first, second, third} {
			x.Lease.Release()
		}
	}
	assert.Greater(t, len(places), 4, "conversations are spread")
}

// expected returns what a replica thinks of a request before it places it.
func expected(t *testing.T, b *Balancer, in request.Incoming) *memory {
	t.Helper()
	x, m := &exchange.Exchange{Incoming: in}, &memory{}
	x.Arrived, x.Target = noon, "m"
	require.NoError(t, m.read(x, b.configs.Current().Parsers))
	m.hash(x, 0)
	m.describe(x, 0)
	m.match(b.prefixes)
	m.ours = b.recent.placed(&m.chain, m.turns.Asked)
	m.expect(b.snapshots.Snapshot().Endpoints, b.traffic.Others(), &b.reuse)
	require.NotNil(t, m.home)
	return m
}

func TestHomeOfWhatBeginsAlike(t *testing.T) {
	t.Parallel()
	system := strings.Repeat("You are an assistant. ", 20)
	homes := func(b *Balancer, answers int) (homes []string) {
		for conversation := range 30 {
			homes = append(homes, expected(t, b, turnUnder(system, conversation, answers)).home.Address())
		}
		return homes
	}
	different := func(homes []string) int { return len(slices.Compact(slices.Sorted(slices.Values(homes)))) }

	a, b := replica(), replica()
	assert.Equal(t, 1, different(homes(a, 0)), "what is shared goes together")

	for range 10 {
		a.reuse.see(900, 800, 1000)
		b.reuse.see(900, 800, 1000)
	}
	opening := homes(a, 0)
	assert.Greater(t, different(opening), 4, "conversations are spread, though few servers have been seen to have their system prompt")
	assert.Equal(t, opening, homes(a, 1), "they stay at home")
	assert.Equal(t, opening, homes(b, 3))
}

func TestWhatWasPlacedHereIsNotExpectedOfOthers(t *testing.T) {
	t.Parallel()
	a, b := replica(), replica()
	for range 10 {
		a.reuse.see(900, 800, 1000)
		b.reuse.see(900, 800, 1000)
	}
	x := a.placed(t, turn(1, 0))
	a.prefixes.Resize(x.Endpoint.Cache(), 0) // it is pushed out
	next, unseen := expected(t, a, turn(1, 1)), expected(t, a, turn(1, 2))
	assert.Zero(t, next.known())
	assert.Zero(t, next.prompt(next.home).History, "nobody else has placed it since")
	assert.NotZero(t, unseen.prompt(unseen.home).History, "somebody has placed its second turn")
	assert.Less(t, next.sharing, unseen.sharing, "others ask for it in the next turn only")
	other := expected(t, b, turn(1, 1))
	assert.Equal(t, x.Destination, other.home.Address())
	assert.NotZero(t, other.prompt(other.home).History, "somebody has placed it")
}

func TestReuse(t *testing.T) {
	t.Parallel()
	var r reuse
	assert.Zero(t, r.again(), "nothing was seen")
	for range 1000 {
		r.see(100, 0, 1000)
	}
	assert.False(t, r.conversing())
	assert.InDelta(t, 100.0/900, r.again(), 0.01)
	for range 1000 {
		r.see(900, 800, 1000)
	}
	assert.InDelta(t, 2, r.again(), 0.01, "each time once, and the conversation goes on")
	assert.True(t, r.conversing())

	var young reuse
	young.see(0, 0, 1000)
	assert.False(t, young.conversing())
	for range 2 {
		young.see(0, 500, 1000)
	}
	assert.True(t, young.conversing(), "few requests are enough to see it")
}
