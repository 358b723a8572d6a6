package observe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	return &unstructured.Unstructured{Object: golden.Decode[map[string]any](t, []byte(text))}
}

func TestSuperseded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		want       time.Time
	}{
		{name: "never", give: "{}"},
		{name: "at a time", give: "{metadata: {annotations: {fairlead.dev/superseded-at: '2026-05-04T12:00:00+02:00'}}}", want: time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)},
		{name: "at no time", give: "{metadata: {annotations: {fairlead.dev/superseded-at: yesterday}}}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := Live{Object: object(t, tt.give)}
			assert.True(t, l.Superseded().Equal(tt.want))
			assert.Equal(t, tt.want.IsZero(), l.Superseded().IsZero())
		})
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	live := func(slot, role, annotations string) Live {
		return Live{Slot: plan.Slot(slot), Object: object(t, "{metadata: {labels: {fairlead.dev/component: '"+role+"'}, annotations: {"+annotations+"}}}")}
	}
	roles, claims := slots([]Live{
		live("entry", "router", "fairlead.dev/claim: y.example.com/"), live("entry", "engine", "fairlead.dev/claim: x.example.com/a/"),
		live("entry", "router", "fairlead.dev/claim: y.example.com/"), live("entry", "", ""), live("decoder", "decoder", "fairlead.dev/claim: what"),
		live("decoder", "decoder", "fairlead.dev/claim: z.example.com/, fairlead.dev/superseded-at: '2026-05-04T12:00:00Z'"), live("engine", "", ""),
	})
	assert.Equal(t, map[plan.Slot][]isvc.Role{plan.Entry: {isvc.Router, isvc.Engine}, "decoder": {isvc.Decoder}}, roles,
		"each once, and none of what takes no requests")
	assert.Equal(t, map[plan.Slot][]plan.Claim{plan.Entry: {{Host: "x.example.com", Path: "/a/"}, {Host: "y.example.com", Path: "/"}}}, claims,
		"sorted, each once, and none of what others have taken the place of")
	roles, claims = slots(nil)
	assert.Empty(t, roles)
	assert.Empty(t, claims)
}

// What a cache could not read as its type is there, and says nothing.
func TestList(t *testing.T) {
	t.Parallel()
	s := &corev1.Service{}
	assert.Equal(t, []*corev1.Service{s}, list[*corev1.Service]([]any{nil, s, &unstructured.Unstructured{}}))
	assert.NotNil(t, list[*corev1.Service](nil))
}
