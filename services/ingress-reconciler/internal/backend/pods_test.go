package backend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

type labels = map[string]string

// selecting returns OME's Service of the engine with a selector.
func selecting(selector labels, change ...func(*corev1.Service)) *corev1.Service {
	s := service("chat-engine", isvc.Engine, change...)
	s.Spec.Selector = selector
	return s
}

// native returns the selector of OME 1.3 for an engine in mode OMENative, with additional labels.
func native(more ...string) labels {
	all := labels{"ome.io/inferenceservice": "chat", "component": "engine", "ome.io/managed-by": "OMENative"}
	for _, m := range more {
		key, value, _ := strings.Cut(m, "=")
		all[key] = value
	}
	return all
}

const leader, ordinal = "ome.io/runner=leader", "ome.io/pod-ordinal=0"

// ofRevision returns the Service that OME 1.3 creates for one revision of the engine.
func ofRevision(hash string, more ...string) *corev1.Service {
	s := service("chat-engine-rev-"+hash, isvc.Engine)
	s.Labels["ome.io/revision-hash"], s.Spec.Selector = hash, native(append(more, "ome.io/revision-hash="+hash)...)
	return s
}

func TestSelectPods(t *testing.T) {
	t.Parallel()
	headless := ofRevision("b")
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	tests := []struct {
		name    string
		give    []*corev1.Service
		want    labels
		workers bool
	}{
		{
			name: "RawDeployment", give: []*corev1.Service{selecting(labels{"app": "chat-engine"})},
			want: labels{"app": "chat-engine", "ome.io/inferenceservice": "chat", "component": "engine"},
		},
		{
			name: "MultiNode: OME's selector matches the leaders of the whole namespace",
			give: []*corev1.Service{selecting(labels{"ray.io/node-type": "head"})},
			want: labels{"ray.io/node-type": "head", "ome.io/inferenceservice": "chat", "component": "engine"},
		},
		{name: "OMENative, one pod", give: []*corev1.Service{selecting(native()), ofRevision("a")}, want: native()},
		{
			name: "OMENative, leader and workers",
			give: []*corev1.Service{selecting(native(leader, ordinal)), ofRevision("a", leader, ordinal)}, want: native(leader, ordinal),
		},
		{
			name: "workers by the runtime", give: []*corev1.Service{selecting(native()), ofRevision("a", leader, ordinal), headless},
			want: native(leader, ordinal), workers: true,
		},
		{
			name: "workers by the runtime, two revisions",
			give: []*corev1.Service{ofRevision("a", leader, ordinal), ofRevision("b", leader, ordinal), selecting(native())},
			want: native(leader, ordinal), workers: true,
		},
		{
			name: "workers by the runtime, pods of an early release without ordinals",
			give: []*corev1.Service{ofRevision("a", leader, ordinal), ofRevision("b", leader), selecting(native())}, want: native(leader),
			workers: true,
		},
		{
			name: "from one pod to leader and workers",
			give: []*corev1.Service{ofRevision("a", leader, ordinal), ofRevision("b"), selecting(native())}, want: native(), workers: true,
		},
		{
			name: "the other order", give: []*corev1.Service{ofRevision("b"), ofRevision("a", leader, ordinal), selecting(native())},
			want: native(), workers: true,
		},
		{name: "a revision of the decoder", give: []*corev1.Service{selecting(native()), func() *corev1.Service {
			s := ofRevision("a", leader, ordinal)
			s.Labels["component"] = "decoder"
			return s
		}()}, want: native()},
		{name: "a revision of another service", give: []*corev1.Service{selecting(native()), func() *corev1.Service {
			s := ofRevision("a", leader, ordinal)
			s.OwnerReferences[0].UID = "other"
			return s
		}()}, want: native()},
		{name: "a revision that is being deleted", give: []*corev1.Service{selecting(native()), func() *corev1.Service {
			s := ofRevision("a", leader, ordinal)
			s.DeletionTimestamp = &metav1.Time{}
			return s
		}()}, want: native()},
		{
			name: "replicas that the user created",
			give: []*corev1.Service{
				selecting(labels{"ome.io/inferenceservice": "qwen", "component": "engine", "ome.io/managed-by": "OMENative"}),
			},
			want: labels{"ome.io/inferenceservice": "qwen", "component": "engine", "ome.io/managed-by": "OMENative"},
		},
		{
			name: "a Service without the label of the service",
			give: []*corev1.Service{selecting(labels{"app": "x"}, func(s *corev1.Service) { delete(s.Labels, LabelService) })},
			want: labels{"app": "x", "ome.io/inferenceservice": "chat", "component": "engine"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := map[*corev1.Service]*corev1.Service{}
			for _, s := range tt.give {
				before[s] = s.DeepCopy()
			}
			got, err := SelectPods(tt.give, chat, isvc.Engine)
			require.NoError(t, err)
			assert.Equal(t, Pods{Labels: tt.want, Workers: tt.workers}, got)
			for s, copied := range before {
				assert.Equal(t, copied, s, "cached objects are not changed")
			}
		})
	}
}

func TestSelectPodsOfNoService(t *testing.T) {
	t.Parallel()
	_, err := SelectPods(nil, chat, isvc.Engine)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = SelectPods([]*corev1.Service{selecting(nil)}, chat, isvc.Engine)
	require.ErrorIs(t, err, ErrNoSelector)

	long := &isvc.Service{Namespace: "models", Name: strings.Repeat("n", 64), UID: "chat-uid"}
	s := selecting(labels{"app": "x"}, func(s *corev1.Service) { delete(s.Labels, LabelService) })
	_, err = SelectPods([]*corev1.Service{s}, long, isvc.Engine)
	require.ErrorContains(t, err, "no pod can have label ome.io/inferenceservice=nnn")
}

func TestMatch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		pods     labels
		selector labels
		want     Match
		workers  bool
	}{
		{name: "the same labels", pods: native(), selector: native(), want: MatchAll},
		{name: "fewer labels", pods: native(), selector: labels{"component": "engine"}, want: MatchAll},
		{name: "no labels", pods: native(), want: MatchAll},
		{name: "labels that are not known", pods: native(), selector: labels{"tier": "gold", "component": "engine"}, want: MatchUnknown},
		{name: "another value", pods: native(), selector: labels{"tier": "gold", "component": "router"}, want: MatchNone},
		{name: "leaders", pods: native(leader, ordinal), selector: native(leader), want: MatchAll},
		{name: "leaders and workers", pods: native(leader, ordinal), selector: native(), want: MatchAll, workers: true},
		{
			name: "leaders and workers of a LeaderWorkerSet", pods: labels{"ray.io/node-type": "head", "component": "engine"},
			selector: labels{"component": "engine"}, want: MatchAll, workers: true,
		},
		{
			name: "leaders by a label that is not known", pods: native(leader, ordinal), selector: labels{"mine": "leader"},
			want: MatchUnknown,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := Pods{Labels: tt.pods}
			assert.Equal(t, tt.want, p.MatchSelector(tt.selector))
			assert.Equal(t, tt.workers, p.IncludesWorkers(tt.selector))
			assert.Equal(t, tt.want == MatchNone, p.DescribeMismatch(tt.selector) != "")
		})
	}
	assert.Equal(t,
		"the selector has app=x, the pods have app=chat-engine, the selector has component=router, the pods have component=engine",
		Pods{
			Labels: labels{"app": "chat-engine", "component": "engine"},
		}.DescribeMismatch(labels{"component": "router", "app": "x", "z": "z"}))
}
