package ome

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// engineOf returns the engine of a service in release 1.3.
func engineOf(tb testing.TB, s *inferenceService) *component {
	tb.Helper()
	list, err := components(s, &Options{Release: Release13})
	require.NoError(tb, err)
	require.Equal(tb, Engine, list[0].role)
	return &list[0]
}

// stable are the labels that OME's Service of a component in mode OMENative selects.
func stable(service, component string, more ...string) map[string]string {
	selector := map[string]string{"ome.io/inferenceservice": service, "component": component, "ome.io/managed-by": "OMENative"}
	for i := 0; i < len(more); i += 2 {
		selector[more[i]] = more[i+1]
	}
	return selector
}

// TestSelectors tests the selector of the engine's Service, and the runners whose pods it selects.
func TestSelectors(t *testing.T) {
	t.Parallel()
	const byRuntime = `, annotations: {emulator.fairlead.dev/runtime-workers: "engine=2"}`
	leaders := stable("chat", "engine", "ome.io/runner", "leader", "ome.io/pod-ordinal", "0")
	tests := []struct {
		name, metadata, spec string
		release              Release
		want                 map[string]string
		runners              []string // mode OMENative
		selected             []string
		revision             []string // runners whose pods the Service of the revision selects
	}{
		{name: "raw", release: Release12, spec: "engine: {}", want: map[string]string{"app": "chat-engine"}},
		{name: "nodes", release: Release12, spec: "engine: {leader: {}, worker: {size: 2}}", want: map[string]string{"ray.io/node-type": "head"}},
		{name: "raw in 1.3", release: Release13, spec: "engine: {}", want: map[string]string{"app": "chat-engine"}},
		{name: "nodes in 1.3", release: Release13, spec: "engine: {leader: {}, annotations: {ome.io/deploymentMode: MultiNode}}", want: map[string]string{"ray.io/node-type": "head"}},
		{
			name: "one pod", release: Release13, spec: "deploymentMode: OMENative, engine: {runner: {name: e, ports: [{containerPort: 1}]}}", want: stable("chat", "engine"),
			runners: []string{"default"}, selected: []string{"default"}, revision: []string{"default"},
		},
		{
			name: "leader and workers", release: Release13, spec: "engine: {leader: {runner: {name: e, ports: [{containerPort: 1}]}}, worker: {size: 2}}", want: leaders,
			runners: []string{"leader", "worker"}, selected: []string{"leader"}, revision: []string{"leader"},
		},
		{
			name: "workers without a size", release: Release13, spec: "engine: {leader: {}, worker: {}}", want: leaders,
			runners: []string{"leader", "worker"}, selected: []string{"leader"},
		},
		{
			name: "a leader without workers", release: Release13, spec: "engine: {leader: {}}", want: stable("chat", "engine"),
			runners: []string{"default"}, selected: []string{"default"},
		},
		{
			name: "no workers", release: Release13, spec: "engine: {leader: {}, worker: {size: 0}}", want: stable("chat", "engine"),
			runners: []string{"default"}, selected: []string{"default"},
		},
		{
			name: "workers of the runtime get requests", metadata: byRuntime, release: Release13, spec: "engine: {runner: {name: e, ports: [{containerPort: 1}]}}", want: stable("chat", "engine"),
			runners: []string{"leader", "worker"}, selected: []string{"leader", "worker"}, revision: []string{"leader"},
		},
		{
			name: "workers of the runtime, named here", metadata: byRuntime, release: Release13, spec: "engine: {leader: {}, worker: {}}", want: leaders,
			runners: []string{"leader", "worker"}, selected: []string{"leader"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, o := parse(t, tt.release, tt.metadata, tt.spec), &Options{Release: tt.release, PodImage: "server:1"}
			list, err := components(s, o)
			require.NoError(t, err)
			c := &list[0]
			service := buildService(s, c)
			assert.Equal(t, tt.want, service.Spec.Selector)
			if tt.runners == nil {
				assert.Empty(t, c.replica)
				assert.Subset(t, buildDeployment(s, c, o).Spec.Template.Labels, tt.want)
				workers := buildWorkers(s, c, o)
				require.Equal(t, tt.name == "nodes", workers != nil, "only a LeaderWorkerSet with workers has a Deployment of workers")
				if workers != nil {
					pod := workers.Spec.Template.Labels
					assert.False(t, labels.SelectorFromSet(tt.want).Matches(labels.Set(pod)))
					assert.Subset(t, pod, map[string]string{"ome.io/inferenceservice": "chat", "component": "engine"})
					assert.EqualValues(t, 2, *workers.Spec.Replicas)
				}
				return
			}
			var runners, selected, revision []string
			revisions := buildRevisions(s, c)
			for i, set := range buildSets(buildReplica(s, c, o), c) {
				name := buildReplica(s, c, o).Spec.Runners[i].Name
				pod := labels.Set(set.Spec.Template.Labels)
				runners = append(runners, name)
				if labels.SelectorFromSet(service.Spec.Selector).Matches(pod) {
					selected = append(selected, name)
				}
				if len(revisions) > 1 && labels.SelectorFromSet(revisions[0].Spec.Selector).Matches(pod) {
					revision = append(revision, name)
				}
				for _, whole := range []*corev1.Service{revisions[len(revisions)-1], buildHeadless(&inferenceReplica{}, c)} {
					assert.True(t, labels.SelectorFromSet(whole.Spec.Selector).Matches(pod), "headless Services select all pods")
				}
				assert.NotContains(t, set.Spec.Template.Labels, "app")
				assert.True(t, labels.SelectorFromSet(set.Spec.Selector.MatchLabels).Matches(pod))
			}
			assert.Equal(t, tt.runners, runners)
			assert.Equal(t, tt.selected, selected)
			assert.Equal(t, tt.revision, revision)
		})
	}
}

func TestPodsOfReplicas(t *testing.T) {
	t.Parallel()
	s := parse(t, Release13, ", labels: {team: a}", "engine: {minReplicas: 2, leader: {runner: {name: l, image: own:1, ports: [{containerPort: 30000}]}}, worker: {size: 3, runner: {name: w, image: own:2}}}")
	c := engineOf(t, s)
	replica := buildReplica(s, c, &Options{PodImage: "server:1", PodArgs: []string{"-x"}})
	assert.Equal(t, "chat-engine", replica.Name)
	assert.Equal(t, "chat", replica.Spec.ParentRef.Name)
	assert.Equal(t, []metav1.OwnerReference{s.owner()}, replica.OwnerReferences)
	assert.Equal(t, map[string]string{"team": "a", "ome.io/inferenceservice": "chat", "component": "engine"}, replica.Labels)
	assert.Equal(t, []int32{1, 3}, []int32{replica.Spec.Runners[0].Size, replica.Spec.Runners[1].Size})

	sets := buildSets(replica, c)
	assert.Equal(t, []string{"chat-engine-leader", "chat-engine-worker"}, []string{sets[0].Name, sets[1].Name})
	assert.Equal(t, []int32{2, 6}, []int32{*sets[0].Spec.Replicas, *sets[1].Spec.Replicas})
	assert.Equal(t, "a", sets[1].Spec.Template.Labels["team"])
	leader, worker := sets[0].Spec.Template.Spec.Containers[0], sets[1].Spec.Template.Spec.Containers[0]
	assert.Equal(t, []string{"own:1", "own:2"}, []string{leader.Image, worker.Image})
	assert.Equal(t, 30000, leader.ReadinessProbe.TCPSocket.Port.IntValue())
	assert.Nil(t, worker.ReadinessProbe, "workers do not listen")
}

func TestRevisions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, container string
		want            []corev1.ServicePort // nil: only the headless Service exists
	}{
		{name: "no ports", container: "name: e"},
		{name: "first port", container: "name: e, ports: [{containerPort: 1}, {containerPort: 2, name: metrics}]", want: []corev1.ServicePort{servicePort("", 1, "")}},
		{name: "http", container: "name: e, ports: [{containerPort: 1, name: metrics}, {containerPort: 2, name: http}]", want: []corev1.ServicePort{named(servicePort("http", 2, ""))}},
		{name: "not http1", container: "name: e, ports: [{containerPort: 1, name: metrics}, {containerPort: 2, name: http1}]", want: []corev1.ServicePort{named(servicePort("metrics", 1, ""))}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, Release13, "", "deploymentMode: OMENative, engine: {runner: {"+tt.container+"}}")
			list := buildRevisions(s, engineOf(t, s))
			headless := list[len(list)-1]
			assert.Regexp(t, "^chat-engine-rev-[0-9a-f]{8}-headless$", headless.Name)
			assert.Equal(t, corev1.ClusterIPNone, headless.Spec.ClusterIP)
			assert.Empty(t, headless.Spec.Ports)
			for _, service := range list {
				assert.Equal(t, []metav1.OwnerReference{s.owner()}, service.OwnerReferences)
				assert.Contains(t, headless.Name, service.Labels["ome.io/revision-hash"])
				assert.Subset(t, service.Spec.Selector, service.Labels)
			}
			if tt.want == nil {
				assert.Len(t, list, 1)
				return
			}
			require.Len(t, list, 2)
			assert.Equal(t, headless.Name, list[0].Name+"-headless")
			assert.Equal(t, tt.want, list[0].Spec.Ports)
		})
	}
}

// named returns a port whose target port is its name.
func named(p corev1.ServicePort) corev1.ServicePort {
	p.TargetPort.Type, p.TargetPort.IntVal, p.TargetPort.StrVal = 1, 0, p.Name
	return p
}

func TestReadinessOfReplicas(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		desired      int32
		ready        int32
		want         corev1.ConditionStatus
		reason, text string
	}{
		{"all", 2, 2, corev1.ConditionTrue, "Ready", "All Instances are Ready"},
		{"more than all", 2, 3, corev1.ConditionTrue, "Ready", "All Instances are Ready"},
		{"some", 2, 1, corev1.ConditionFalse, "InsufficientAvailable", "1/2 Instances serving, need 2"},
		{"none", 2, 0, corev1.ConditionFalse, "InsufficientAvailable", "0/2 Instances serving, need 2"},
		{"none wanted", 0, 0, corev1.ConditionFalse, "NoReplicas", "Component has no desired Instances"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := readyOf(Engine, &instances{Replicas: tt.desired, ReadyReplicas: tt.ready, ServingReplicas: tt.ready})
			assert.Equal(t, condition{Type: "EngineReady", Status: tt.want, Reason: tt.reason, Message: tt.text}, got)
		})
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	s := parse(t, Release13, `, annotations: {a: " engine=2, router=x,decoder"}`, "")
	for role, want := range map[Role]int32{Engine: 2, Router: -1, Decoder: -1} {
		n, given := s.number("a", role)
		assert.Equal(t, want >= 0, given, role)
		assert.Equal(t, max(0, want), n, role)
	}
}
