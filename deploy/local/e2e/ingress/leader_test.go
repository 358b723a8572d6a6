package ingress_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

const (
	leading       = "leading" // the namespace
	lease         = "fairlead-ingress-reconciler"
	reconcilerPod = "app.kubernetes.io/instance=" + stack.Reconciler
)

// led are services under load, each at another data plane.
type led struct {
	*system

	names  []types.NamespacedName
	loads  []*load
	values []string // of the release, beside the configuration
}

// assertLeader kills the leader and replaces the pods of the release, while services are used.
func assertLeader(t *testing.T, s *system) {
	s.namespace(t, leading)
	l := &led{system: s}
	overrides := map[types.NamespacedName]fields{}
	for _, e := range []entrance{envoyRoute, traefikIngress} {
		name := types.NamespacedName{Namespace: leading, Name: e.name}
		l.names, overrides[name] = append(l.names, name), e.values
	}
	s.configure(t, baseConfiguration(0), overrides)
	for i, e := range []entrance{envoyRoute, traefikIngress} {
		require.NoError(t, s.create(t.Context(), l.names[i], nil, fields{"engine": component()}))
		s.awaitExposed(t, l.names[i], e.at)
		l.loads = append(l.loads, startLoad(t, l.names[i].Name+"."+leading+"."+domain, "^"+e.name+"-engine-"))
		m := &moved{system: s, name: l.names[i], at: e}
		m.awaitAnswer(t, l.loads[i].host, "engine")
		l.loads[i].switchTo(e.plane(s))
	}
	l.settle(t)
	t.Run("killed", func(t *testing.T) { l.kill(t) })
	t.Run("rolled", func(t *testing.T) { l.roll(t) })
	for _, load := range l.loads {
		load.finish(t)
	}
}

// configurationFlag returns the configuration as a value of the chart.
func (s *system) configurationFlag(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(s.whole())
	require.NoError(t, err)
	return "--set-json=config=" + string(text)
}

// leader returns the identity of the process that holds the Lease, and its pod; both are empty if no process holds it.
func (s *system) leader(ctx context.Context) (identity, pod string, err error) {
	l, err := s.Clientset().CoordinationV1().Leases(stack.ReconcilerNamespace).Get(ctx, lease, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return "", "", err
	}
	pod, _, _ = strings.Cut(*l.Spec.HolderIdentity, "_")
	return *l.Spec.HolderIdentity, pod, nil
}

// kill kills the process of the leader, and changes the override of a service at once.
func (l *led) kill(t *testing.T) {
	l.NeedsOwn(t, "kills a process")
	dead, pod, err := l.leader(t.Context())
	require.NoError(t, err)
	changed, other := l.names[0], l.names[1]
	changes := l.watchChanges(t)
	before, err := l.objects(t.Context(), changed)
	require.NoError(t, err)
	pid, err := stack.ProcessOf(pod)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	killed := time.Now()
	l.override(t, changed, envoyRoute.with(fields{"additionalIngressDomains": []string{"second.test"}}))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		now, err := l.objects(t.Context(), changed)
		require.NoError(collect, err)
		require.Len(collect, now, len(before)+1)
	}, kubetest.Patience, tick)
	t.Logf("another process wrote %s after the kill", time.Since(killed).Round(time.Millisecond))
	next, _, err := l.leader(t.Context()) // of the other pod, or of the container that the kubelet restarted
	require.NoError(t, err)
	assert.NotEqual(t, dead, next)
	l.awaitExposed(t, changed, envoyRoute.at)
	l.settle(t)

	seen := changes()
	for _, o := range seen {
		assert.NotEqual(t, watch.Deleted, o.event, "%s %s", o.kind, o.name)
		switch {
		case o.kind == "InferenceService" && o.name == other.Name:
			assert.Equal(t, metav1.ConditionTrue, o.exposed, "of %s", o.name)
		case o.kind != "InferenceService":
			assert.EqualValues(t, 1, o.generation, "%s %s", o.kind, o.name)
		}
	}
	now, err := l.objects(t.Context(), changed)
	require.NoError(t, err)
	assert.Subset(t, uids(now), uids(before))
}

// roll replaces the pods, and then changes the configuration.
func (l *led) roll(t *testing.T) {
	l.label(t, "a") // the first change of an object takes over the fields from its creation
	l.settle(t)
	begun, old := time.Now(), l.pods(t)
	l.values = []string{"--set=podAnnotations.rolled=once"}
	l.upgrade(t)
	l.awaitReplaced(t, old)
	l.settle(t)
	assert.Empty(t, objectWrites(l.calls(t, begun)), "new replicas write nothing that is already there")

	changes := l.watchChanges(t)
	want := l.label(t, "b")
	l.settle(t)
	var got []string
	for _, c := range changes() {
		assert.Equal(t, watch.Modified, c.event, c.name)
		got = append(got, c.kind+" "+c.name)
	}
	assert.ElementsMatch(t, want, got, "each object changes once, and nothing else does")
}

func (l *led) upgrade(t *testing.T) {
	t.Helper()
	require.NoError(t, upgrade(t.Context(), l.Cluster, stack.CurrentRelease(tag), append(l.values, l.configurationFlag(t))...))
}

// label adds a label to all objects by an upgrade of the release, which also makes the configuration that tests have written part
// of the release, and returns the objects.
func (l *led) label(t *testing.T, team string) (names []string) {
	t.Helper()
	l.mu.Lock()
	l.document["labels"] = fields{"example.com/team": team}
	l.mu.Unlock()
	l.upgrade(t)
	for _, name := range l.names {
		var all []made
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			var err error
			all, err = l.objects(t.Context(), name)
			require.NoError(collect, err)
			for i := range all {
				require.Equal(collect, team, all[i].GetLabels()["example.com/team"], "%s", all[i].GetName())
			}
		}, kubetest.Patience, tick)
		for i := range all {
			names = append(names, all[i].GetKind()+" "+all[i].GetName())
		}
	}
	return names
}

// change is an event of a watch.
type change struct {
	event      watch.EventType
	kind, name string
	generation int64
	exposed    metav1.ConditionStatus // of an InferenceService
}

// watchChanges watches the services and their objects until the returned function is called, which returns the events.
func (l *led) watchChanges(t *testing.T) func() []change {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var seen []change
	var watching sync.WaitGroup
	for _, kind := range append(slices.Clone(written), inferenceServices) {
		resource := l.client.Resource(kind).Namespace(leading)
		list, err := resource.List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		w, err := resource.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		require.NoError(t, err)
		watching.Go(func() {
			for e := range w.ResultChan() {
				u, ok := e.Object.(*unstructured.Unstructured)
				if !ok {
					continue // the end of the watch
				}
				mu.Lock()
				seen = append(seen, change{event: e.Type, kind: u.GetKind(), name: u.GetName(), generation: u.GetGeneration(), exposed: exposedOf(u).Status})
				mu.Unlock()
			}
		})
	}
	return func() []change {
		cancel()
		watching.Wait()
		return seen
	}
}

// assertOneLeader checks that the replica that held the Lease sent each write, in the whole audit log.
func assertOneLeader(t *testing.T, s *system) {
	leads, terms := "", 0
	for _, c := range s.calls(t, time.Time{}) {
		switch {
		case c.Object.Resource == "leases" && c.Writes():
			if c.Response.Code < 300 && leads != c.Pod() {
				leads = c.Pod()
				terms++
			}
		case c.Writes() && c.Object.Resource != "events":
			assert.Equal(t, leads, c.Pod(), "%s %s %s at %s", c.Verb, c.Object.Resource, c.Object.Name, c.At)
		}
	}
	assert.Greater(t, terms, 2, "the leader was killed, and replaced")
}
