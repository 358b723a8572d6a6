package ome

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func at(second int64) metav1.Time { return metav1.NewTime(time.Unix(1_700_000_000+second, 0)) }

func TestReady(t *testing.T) {
	t.Parallel()
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	tests := []struct {
		name   string
		give   []condition
		want   corev1.ConditionStatus
		reason string
	}{
		{name: "one is missing", give: []condition{{Type: "EngineReady", Status: yes}}, want: unknown},
		{name: "both", give: []condition{{Type: "EngineReady", Status: yes}, {Type: "IngressReady", Status: yes, Reason: "IngressDisabled"}}, want: yes},
		{name: "no engine", give: []condition{{Type: "EngineReady", Status: no, Reason: "Down"}, {Type: "IngressReady", Status: yes}}, want: no, reason: "Down"},
		{name: "the newest counts", give: []condition{{Type: "EngineReady", Status: no, Reason: "Older"}, {Type: "IngressReady", Status: no, Reason: "Newer"}}, want: no, reason: "Newer"},
		{name: "False before Unknown", give: []condition{{Type: "EngineReady", Status: no, Reason: "Down"}, {Type: "IngressReady", Status: unknown, Reason: "Newer"}}, want: no, reason: "Down"},
		{
			name: "router and decoder do not count",
			give: []condition{{Type: "EngineReady", Status: yes}, {Type: "IngressReady", Status: yes}, {Type: "RouterReady", Status: no, Reason: "Down"}, {Type: "DecoderReady", Status: unknown}},
			want: yes,
		},
		{name: "recovered", give: []condition{{Type: "EngineReady", Status: yes}, {Type: "IngressReady", Status: no}, {Type: "IngressReady", Status: yes}}, want: yes},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var s status
			for i, c := range tt.give {
				s.set(c, at(int64(i)))
			}
			ready := s.find("Ready")
			assert.Equal(t, tt.want, ready.Status)
			assert.Equal(t, tt.reason, ready.Reason)
		})
	}
}

func TestSetKeepsWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	theirs := condition{Type: "fairlead.dev/Programmed", Status: corev1.ConditionFalse, Severity: "Warning", LastTransitionTime: at(-9), Reason: "R", Message: "m"}
	s := status{Conditions: []condition{theirs}}
	s.set(condition{Type: "RouterReady", Status: corev1.ConditionTrue}, at(1))
	s.set(condition{Type: "EngineReady", Status: corev1.ConditionTrue}, at(2))
	before := s.timeless()
	s.set(condition{Type: "RouterReady", Status: corev1.ConditionTrue}, at(3))
	assert.Equal(t, []condition{
		{Type: "EngineReady", Status: corev1.ConditionTrue, LastTransitionTime: at(2)},
		{Type: "Ready", Status: corev1.ConditionUnknown, LastTransitionTime: at(2)},
		{Type: "RouterReady", Status: corev1.ConditionTrue, Severity: "Info", LastTransitionTime: at(1)},
		theirs,
	}, s.Conditions)
	assert.True(t, sameStatus(&before, &s), "transition times are ignored")
	s.set(condition{Type: "RouterReady", Status: corev1.ConditionTrue, Reason: "Other"}, at(4))
	assert.False(t, sameStatus(&before, &s))
	assert.Equal(t, at(4), s.find("RouterReady").LastTransitionTime)
}

// The state of the model is that before the reconcile, and stays when the service is no longer ready.
func TestModelStatus(t *testing.T) {
	t.Parallel()
	var s status
	for _, tt := range []struct {
		ready bool
		want  string
	}{{false, "InProgress"}, {true, "UpToDate"}, {false, "UpToDate"}} {
		s.setModel(tt.ready)
		assert.Equal(t, tt.want, s.ModelStatus["transitionStatus"])
	}
}
