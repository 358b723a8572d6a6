package condition

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.FixedZone("", 7200))

// route returns a Route whose object is named after its URL.
func route(url, at string, v gatewayapi.Verdict) Route {
	return Route{URL: url, Object: "HTTPRoute " + strings.Trim(strings.TrimPrefix(url, "http:"), "/"), Server: at, Verdict: v}
}

var (
	accepted = gatewayapi.Verdict{Acceptance: gatewayapi.Accepted}
	pending  = gatewayapi.Verdict{Reason: "ParentStatusNotAvailable", Message: "no status"}
	refused  = gatewayapi.Verdict{Acceptance: gatewayapi.Refused, Reason: "NotAllowedByListeners", Message: "no"}
)

func TestBuild(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name            string
		give            State
		status          metav1.ConditionStatus
		reason, message string
	}{
		{
			name: "accepted", give: State{Routes: []Route{route("http://chat.example.com/", "Gateway a/b", accepted)}},
			status: "True", reason: "Programmed", message: "http://chat.example.com/; Gateway a/b: accepted (HTTPRoute chat.example.com)",
		},
		{
			name: "each URL and each Gateway once, sorted",
			give: State{
				Routes: []Route{
					route("http://b/", "Gateway z", accepted), route("http://a/", "Gateway z", accepted),
					route("http://b/", "Gateway y", accepted),
				},
			},
			status: "True", reason: "Programmed",
			message: "http://a/, http://b/; Gateway y: accepted (HTTPRoute b); Gateway z: accepted (HTTPRoute a, HTTPRoute b)",
		},
		{
			name:   "one is pending",
			give:   State{Routes: []Route{route("http://a/", "Gateway y", accepted), route("http://a/", "Gateway z", pending)}},
			status: "Unknown", reason: "ParentStatusNotAvailable",
			message: "http://a/; Gateway y: accepted (HTTPRoute a); Gateway z: no status (HTTPRoute a)",
		},
		{
			name:   "one refuses, another is pending",
			give:   State{Routes: []Route{route("http://a/", "Gateway y", pending), route("http://a/", "Gateway z", refused)}},
			status: "False", reason: "NotAllowedByListeners",
			message: "http://a/; Gateway y: ParentStatusNotAvailable: no status (HTTPRoute a); Gateway z: no (HTTPRoute a)",
		},
		{
			name: "a component is not exposed, whoever accepts the entry",
			give: State{
				Routes: []Route{route("http://a/", "Gateway y", accepted)},
				Reasons: []plan.Reason{{
					Role: isvc.Engine, Reason: "ServiceNotFound", Message: "engine chat-engine: the Service does not exist",
				}},
			},
			status: "False", reason: "ServiceNotFound",
			message: "http://a/; Gateway y: accepted (HTTPRoute a); engine chat-engine: the Service does not exist",
		},
		{
			name: "a reason without a message", give: State{Reasons: []plan.Reason{{Reason: "Disabled"}}},
			status: "False", reason: "Disabled", message: "Disabled",
		},
		{
			name: "a warning",
			give: State{
				Routes:  []Route{route("http://a/", "Gateway y", accepted)},
				Reasons: []plan.Reason{{Role: isvc.Engine, Reason: plan.ReasonDecoderWithoutRouter, Message: "by itself", Warning: true}},
				Notes:   []string{"note"},
			},
			status: "True", reason: "Programmed",
			message: "http://a/; Gateway y: accepted (HTTPRoute a); DecoderWithoutRouter: by itself; note",
		},
		{
			name: "a reason that is a warning here",
			give: State{
				Routes: []Route{route("http://a/", "Gateway y", accepted)},
				Reasons: []plan.Reason{{
					Role: isvc.Router, Reason: plan.ReasonPoolUnsupported, Message: "the router has them", Warning: true,
				}},
			},
			status: "True", reason: "Programmed",
			message: "http://a/; Gateway y: accepted (HTTPRoute a); InferencePoolUnsupported: the router has them",
		},
		{
			name:   "the same reason, and nothing is exposed",
			give:   State{Reasons: []plan.Reason{{Role: isvc.Engine, Reason: plan.ReasonPoolUnsupported, Message: "no"}}},
			status: "False", reason: "InferencePoolUnsupported", message: "no",
		},
		{
			name: "a warning and a problem",
			give: State{
				Reasons: []plan.Reason{
					{Reason: plan.ReasonIngressClassNotFound, Message: "x", Warning: true},
					{Role: isvc.Decoder, Reason: "NameConflict", Message: "y"},
				},
			},
			status: "False", reason: "NameConflict", message: "IngressClassNotFound: x; y",
		},
		{
			name: "the whole before the router, the router before the engine, the engine before the decoder",
			give: State{
				Reasons: []plan.Reason{
					{Role: isvc.Decoder, Reason: "A"}, {Role: isvc.Engine, Reason: "B"}, {Role: isvc.Router, Reason: "C"}, {Reason: "D"},
				},
			},
			status: "False", reason: "D", message: "A; B; C; D",
		},
		{
			name: "the router before the engine",
			give: State{
				Reasons: []plan.Reason{
					{Role: isvc.Decoder, Reason: "A"}, {Role: isvc.Engine, Reason: "B"}, {Role: isvc.Router, Reason: "C"},
				},
			},
			status: "False", reason: "C", message: "A; B; C",
		},
		{name: "no routes and no reasons", status: "Unknown", reason: "ParentStatusNotAvailable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, isvc.Condition{
				Type: "fairlead.dev/Exposed", Status: tt.status, Severity: "Info", LastTransitionTime: "2026-05-04T10:00:00Z",
				Reason: tt.reason, Message: tt.message,
			}, Build(tt.give, nil, now))
		})
	}
}

func TestTheTimeIsThatOfTheStatus(t *testing.T) {
	t.Parallel()
	before := isvc.Condition{Status: "True", Reason: "Old", LastTransitionTime: "2020-01-01T00:00:00Z"}
	state := State{Routes: []Route{route("http://a/", "Gateway a/b", accepted)}}
	assert.Equal(t, "2020-01-01T00:00:00Z", Build(state, &before, now).LastTransitionTime)
	assert.Equal(t, "2026-05-04T10:00:00Z", Build(State{}, &before, now).LastTransitionTime)
}

// The same state in another order must not cause a write.
func TestOrderDoesNotMatter(t *testing.T) {
	t.Parallel()
	state := State{
		Routes: []Route{
			route("http://a/", "Gateway y", pending), route("http://a/", "Gateway z", refused), route("http://b/", "Gateway y", accepted),
			route("http://b/", "Gateway x", gatewayapi.Verdict{Acceptance: gatewayapi.Refused, Reason: "Another", Message: "m"}),
		},
		Reasons: []plan.Reason{
			{Role: isvc.Engine, Reason: "B", Message: "2"}, {Role: isvc.Engine, Reason: "A", Message: "1"},
			{Role: isvc.Engine, Reason: plan.ReasonDecoderWithoutRouter},
		},
		Notes: []string{"two", "one"},
	}
	for _, s := range []State{state, {Routes: state.Routes}, {Routes: state.Routes, Notes: state.Notes}} {
		want := Build(s, nil, now)
		random := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			random.Shuffle(len(s.Routes), func(i, j int) { s.Routes[i], s.Routes[j] = s.Routes[j], s.Routes[i] })
			random.Shuffle(len(s.Reasons), func(i, j int) { s.Reasons[i], s.Reasons[j] = s.Reasons[j], s.Reasons[i] })
			random.Shuffle(len(s.Notes), func(i, j int) { s.Notes[i], s.Notes[j] = s.Notes[j], s.Notes[i] })
			before := State{
				Routes: append([]Route{}, s.Routes...), Reasons: append([]plan.Reason{}, s.Reasons...),
				Notes: append([]string{}, s.Notes...),
			}
			require.Equal(t, want, Build(s, nil, now))
			require.ElementsMatch(t, before.Notes, s.Notes)
			if len(s.Notes) > 0 {
				require.Equal(t, before.Notes, s.Notes, "the input is not changed")
			}
		}
	}
}

func TestAMessageThatIsTooLong(t *testing.T) {
	t.Parallel()
	for pad := range 3 {
		message := Build(State{Notes: []string{strings.Repeat("a", pad) + strings.Repeat("€", 3000)}}, nil, now).Message
		assert.LessOrEqual(t, len(message), maxMessage)
		assert.True(t, strings.HasSuffix(message, "€..."))
		assert.True(t, utf8.ValidString(message))
	}
}

const metadata = `"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"namespace": "models", "name": "chat", ` +
	`"resourceVersion": "7"}`

// apply patches the condition into the status of a service, as the API server does.
func apply(t *testing.T, document string, c isvc.Condition) string {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(document), &u.Object))
	s, err := isvc.Read(u)
	require.NoError(t, err)
	text := BuildPatch(s, c)
	if text == nil {
		return ""
	}
	patch, err := jsonpatch.DecodePatch(text)
	require.NoError(t, err)
	after, err := patch.Apply([]byte(document))
	require.NoError(t, err)

	require.NoError(t, json.Unmarshal(after, &u.Object))
	s, err = isvc.Read(u)
	require.NoError(t, err)
	require.Equal(t, c, *Find(s), "the patched service has the condition")
	require.Nil(t, BuildPatch(s, c), "a second patch is empty")
	return string(after)
}

func TestPatch(t *testing.T) {
	t.Parallel()
	const exposed = `{"type":"fairlead.dev/Exposed","status":"True","severity":"Info","lastTransitionTime":"2026-05-04T10:00:00Z",` +
		`"reason":"Programmed","message":"http://a/ \"b\""}`
	var c isvc.Condition
	require.NoError(t, json.Unmarshal([]byte(exposed), &c))
	const ready = `{"type":"Ready","status":"True","lastTransitionTime":null,"of":{"another":["client"]}}`
	tests := []struct{ name, give, want string }{
		{name: "no status", give: `{` + metadata + `}`, want: `{` + metadata + `, "status": {"conditions": [` + exposed + `]}}`},
		{
			name: "a status that is null", give: `{` + metadata + `, "status": null}`,
			want: `{` + metadata + `, "status": {"conditions": [` + exposed + `]}}`,
		},
		{
			name: "no conditions", give: `{` + metadata + `, "status": {"url": "http://x"}}`,
			want: `{` + metadata + `, "status": {"url": "http://x", "conditions": [` + exposed + `]}}`,
		},
		{
			name: "conditions that are null", give: `{` + metadata + `, "status": {"conditions": null}}`,
			want: `{` + metadata + `, "status": {"conditions": [` + exposed + `]}}`,
		},
		{
			name: "an empty list", give: `{` + metadata + `, "status": {"conditions": []}}`,
			want: `{` + metadata + `, "status": {"conditions": [` + exposed + `]}}`,
		},
		{
			name: "other conditions", give: `{` + metadata + `, "status": {"conditions": [` + ready + `], "components": {}}}`,
			want: `{` + metadata + `, "status": {"conditions": [` + ready + `,` + exposed + `], "components": {}}}`,
		},
		{
			name: "it is there, with another status and a seventh field",
			give: `{` + metadata + `, "status": {"conditions": [` + ready +
				`,{"type":"fairlead.dev/Exposed","status":"False","observedGeneration":3},` + ready + `]}}`,
			want: `{` + metadata + `, "status": {"conditions": [` + ready + `,` + exposed + `,` + ready + `]}}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.JSONEq(t, tt.want, apply(t, tt.give, c))
		})
	}
	assert.Empty(t, apply(t, `{`+metadata+`, "status": {"conditions": [`+ready+`,`+exposed+`]}}`, c), "the condition exists")
}

func TestFind(t *testing.T) {
	t.Parallel()
	s := &isvc.Service{Conditions: []isvc.Condition{{Type: "Ready"}, {Type: Type, Message: "exposed"}}}
	assert.Equal(t, "exposed", Find(s).Message)
	assert.Nil(t, Find(&isvc.Service{Conditions: s.Conditions[:1]}))
}
