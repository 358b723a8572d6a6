package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Subjects of the tests.
var (
	base    = Response{Subject: 1, Model: "base"}
	adapter = Response{Subject: 2, Model: "adapter"}
	missing = Response{Subject: 2, Model: "adapter", ModelMissing: true}
)

// having are the endpoints to which requests of a subject may go.
func (r *rig) having(of Response) (list []int) {
	lacking := r.EndpointsLacking(of.Subject)
	for i, e := range r.endpoints {
		if lacking.CanUse(e, r.clock.Now()) {
			list = append(list, i)
		}
	}
	return list
}

// TestModelThatOneEndpointLacks has an endpoint without an adapter. It answers the other requests.
func TestModelThatOneEndpointLacks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		refusal Response
		signal  request.HealthSignal
		want    int // refusals until it is known
	}{
		{name: "404", refusal: missing, signal: request.Doubtful, want: 2},
		{name: "400", refusal: adapter, signal: request.Doubtful, want: 6},
		{name: "steered", refusal: adapter, signal: request.Steered, want: 6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 3)
			refusals := 0
			for range 60 {
				for i := range 3 {
					r.respondTo(i, request.Answered, base)
				}
				if len(r.having(adapter)) == 3 {
					refusals++
					tt.refusal.Failure = "status " + tt.name
					r.respondTo(0, tt.signal, tt.refusal)
				}
				r.respondTo(1, request.Answered, adapter)
				r.respondTo(2, request.Answered, adapter)
			}
			assert.Equal(t, tt.want, refusals)
			assert.Equal(t, "status "+tt.name, r.logs.All()[0].ContextMap()["failure"])
			assert.Equal(t, []string{causeModel}, r.causes)
			assert.Equal(t, []int{0, 1, 2}, r.usable(), "of other requests")
			assert.Equal(t, []int{0, 1, 2}, r.having(base))

			for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
				r.after(pause - time.Millisecond)
				assert.Equal(t, []int{1, 2}, r.having(adapter), pause)
				r.after(time.Millisecond)
				assert.Equal(t, []int{0, 1, 2}, r.having(adapter), pause)
				r.EndpointsLacking(adapter.Subject).MarkPlaced(r.endpoints[0], r.clock.Now())
				assert.Equal(t, []int{1, 2}, r.having(adapter), "one request at a time")
				r.respondTo(0, tt.signal, tt.refusal)
			}
			assert.Equal(t, []string{causeModel}, r.causes, "said once")
			assert.Equal(t, 1, r.logs.Len(), "said once")
			r.after(4 * time.Second)
			r.respondTo(0, request.Answered, adapter)
			assert.Nil(t, r.EndpointsLacking(adapter.Subject), "it was loaded")
			assert.Equal(t, 1, r.logs.FilterMessage("Endpoint answers requests for the model again").Len())
		})
	}
}

// TestModelsThatAnEndpointLacksFromTheStart has an endpoint that gets no other requests at first, while another one answers them.
func TestModelsThatAnEndpointLacksFromTheStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	for range minOthers {
		r.respondTo(1, request.Answered, base)
	}
	for range 2 * minDoubtful {
		r.respondTo(0, request.Doubtful, missing)
	}
	assert.Empty(t, r.causes, "of one model: nobody has answered requests for it")
	for range minMissing {
		r.respondTo(1, request.Answered, adapter)
	}
	r.respondTo(0, request.Doubtful, missing)
	assert.Equal(t, []string{causeModel}, r.causes)
	assert.Equal(t, []int{0, 1}, r.usable(), "of other requests")

	r.respondTo(0, request.Doubtful, Response{Subject: base.Subject, ModelMissing: true})
	assert.Equal(t, []int{1}, r.usable(), "it has none of two models")
}

// TestLackOfWhichNothingIsKnown has a request after the pause whose result is never known: another one follows after the same pause.
func TestLackOfWhichNothingIsKnown(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.lackAdapter()
	r.after(time.Second)
	r.EndpointsLacking(adapter.Subject).MarkPlaced(r.endpoints[0], r.clock.Now())
	r.after(time.Second)
	assert.Equal(t, []int{0, 1}, r.having(adapter))
}

// TestLackBesideWrongRequests has an endpoint without an adapter, and a client whose requests for it all endpoints refuse.
func TestLackBesideWrongRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	wrong := Response{Subject: adapter.Subject}
	r.respondTo(0, request.Doubtful, missing)
	for range 4 {
		for range 10 {
			r.respondTo(1, request.Doubtful, wrong)
		}
		r.respondTo(1, request.Answered, adapter)
		r.respondTo(0, request.Doubtful, missing)
	}
	assert.Equal(t, []int{0, 1, 2}, r.having(adapter), "perhaps its requests are wrong")
	more := 0
	for ; len(r.having(adapter)) == 3; more++ {
		r.respondTo(0, request.Doubtful, missing)
	}
	assert.Equal(t, 30, more, "refusals in a row until the endpoint counts as lacking the adapter")
	for range 100 {
		r.respondTo(1, request.Doubtful, wrong)
		r.respondTo(1, request.Answered, adapter)
	}
	r.after(time.Second)
	r.EndpointsLacking(adapter.Subject).MarkPlaced(r.endpoints[0], r.clock.Now())
	r.respondTo(0, request.Doubtful, wrong)
	assert.Equal(t, []int{0, 1, 2}, r.having(adapter), "a wrong request says nothing of it")
}

// TestRollOut has a model that one of many endpoints has.
func TestRollOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, 10)
	for range minMissing {
		for i := range 9 {
			r.respondTo(i, request.Doubtful, missing)
		}
		r.respondTo(9, request.Answered, adapter)
	}
	r.respondTo(9, request.Answered, adapter)
	for i := range 9 {
		r.respondTo(i, request.Doubtful, missing)
	}
	assert.Equal(t, []int{9}, r.having(adapter))
}

// lackAdapter lets endpoint 0 lack the adapter.
func (r *rig) lackAdapter() {
	for range minMissing {
		r.respondTo(0, request.Answered, base)
		r.respondTo(0, request.Doubtful, missing)
		for range minMissing {
			r.respondTo(1, request.Answered, adapter)
		}
	}
}

// TestModelThatNobodyHas has requests that all endpoints refuse.
func TestModelThatNobodyHas(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	for range 60 {
		for i := range 3 {
			r.respondTo(i, request.Doubtful, missing)
			r.respondTo(i, request.Answered, base)
		}
	}
	assert.Nil(t, r.EndpointsLacking(adapter.Subject))
	assert.Empty(t, r.causes)
}

// TestModelThatIsRefusedSometimes has an endpoint that answers half of the requests for the adapter: it does not lack it, but fails.
func TestModelThatIsRefusedSometimes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	for i := range 30 {
		r.respondTo(0, []request.HealthSignal{request.Doubtful, request.Answered}[i%2], missing)
		for e := range 3 {
			r.respondTo(e, request.Answered, base)
		}
		r.respondTo(1, request.Answered, adapter)
	}
	assert.Nil(t, r.EndpointsLacking(adapter.Subject))
	assert.Equal(t, causeResponses, r.causes[0])
}

// TestLacksAreForgotten has endpoints that leave the pool, and a client that asks for models that nobody has.
func TestLacksAreForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.lackAdapter()
	for i := range 10 * maxSubjects {
		r.respondTo(i%2, request.Doubtful, Response{Subject: uint64(100 + i), Model: fmt.Sprint(i), ModelMissing: true})
		r.respondTo(i%2, request.Answered, base)
	}
	assert.Len(t, r.subjects, maxSubjects)
	assert.Equal(t, []int{1}, r.having(adapter), "models that nobody has do not take its place")
	r.SetEndpoints(r.endpoints[1:])
	assert.Nil(t, r.EndpointsLacking(adapter.Subject))
}
