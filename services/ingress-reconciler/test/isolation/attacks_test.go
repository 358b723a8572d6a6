package isolation

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

// scene is a cluster for one attack.
type scene struct{ *world }

func newScene(t *testing.T, config string) *scene {
	t.Helper()
	s := strategies[0]
	return &scene{
		&world{
			cluster:  newCluster(t, rand.New(rand.NewPCG(0, 0)), "ingressDomain: example.com\nholdSeconds: 60\n"+s.config+config),
			entrance: s.entrance,
		},
	}
}

// with creates or changes a service with an engine.
func (s *scene) with(namespace, name string, ready bool, annotations map[string]string) {
	s.changing = cache.ObjectName{Namespace: namespace, Name: name}
	if s.condition(s.changing) == nil && s.objects[key{"InferenceService", s.key()}] == nil {
		s.put(`{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {namespace: %s, name: %s}, spec: {engine: {}}}`, namespace,
			name)
		s.put(`{apiVersion: v1, kind: Service, metadata: {namespace: %[1]s, name: %[2]s-engine, labels: {ome.io/inferenceservice: %[2]s,
		component: engine},
			ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: %[2]s, uid: '%[3]s', controller: true}]},
			spec: {clusterIP: 10.0.0.1, ports: [{name: http1, port: 8080}]}}`, namespace, name, s.service().GetUID())
	}
	s.setReady(ready)
	u := s.service()
	u.SetAnnotations(annotations)
	s.store(u)
	s.settle()
}

// owner returns the service that receives a request.
func (s *scene) owner(host, path string) string {
	return s.world.owner(s.ask(probe{host: host, path: path}))
}

func (s *scene) reason(namespace, name string) string {
	c := s.condition(cache.ObjectName{Namespace: namespace, Name: name})
	if c == nil {
		return ""
	}
	return c.Reason
}

func TestALongerPathDoesNotTakeAnothersRequests(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ config, domain, path, host, request string }{
		"host of the victim": {
			"allowedDomains: {'*': [example.com]}\n", "chat.victim.example.com", "/v1", "chat.victim.example.com", "/v1/chat/completions",
		},
		"host of the victim, allowed": {
			"allowedDomains: {'*': [example.com]}\n", "chat.victim.example.com", "/evil", "chat.victim.example.com", "/evil/x",
		},
		"path of the victim": {
			"perISVCSubdomain: false\n", "llm.example.com", "/victim/chat/v1", "llm.example.com", "/victim/chat/v1/chat/completions",
		},
		"path of the victim, templated": {
			"perISVCSubdomain: false\npathTemplate: '/{{ .Annotations.p }}'\nsharedHostPrefix: ''\n", "example.com", "/victim/chat/v1",
			"example.com", "/victim/chat/v1/chat/completions",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, tt.config)
			s.with("victim", "chat", true, nil)
			assert.Equal(t, "victim/chat", s.owner(tt.host, tt.request))
			s.with("evil", "eve", true,
				map[string]string{"ome.io/ingress-domain": tt.domain, "ome.io/ingress-path-template": tt.path, "p": tt.path})
			assert.Equal(t, "victim/chat", s.owner(tt.host, tt.request))
			assert.Contains(t, []string{plan.ReasonHostConflict, plan.ReasonPathNotAllowed}, s.reason("evil", "eve"),
				"the attacker learns why")
		})
	}
}

func TestAnOlderServiceDoesNotTakeALiveHost(t *testing.T) {
	t.Parallel()
	for name, ready := range map[string]bool{"ready": true, "not ready": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "")
			s.with("evil", "old", ready, nil)
			s.pass(time.Hour)
			s.with("victim", "chat", true, nil)
			s.pass(time.Second)
			assert.Equal(t, condition.ReasonProgrammed, s.reason("victim", "chat"))
			s.with("evil", "old", ready, map[string]string{"ome.io/ingress-domain-template": "chat.victim.example.com"})
			s.pass(time.Hour)
			assert.Equal(t, "victim/chat", s.owner("chat.victim.example.com", "/"))
			assert.Equal(t, condition.ReasonProgrammed, s.reason("victim", "chat"))
			s.start()
			s.settle()
			assert.Equal(t, "victim/chat", s.owner("chat.victim.example.com", "/"), "after a restart, too")
		})
	}
}

func TestAHostChangesHandsAfterTheHold(t *testing.T) {
	t.Parallel()
	s := newScene(t, "domainTemplate: 'one.example.com'\n")
	s.with("victim", "a", true, nil)
	s.pass(time.Second)
	s.with("evil", "b", true, nil)
	assert.Equal(t, plan.ReasonHostConflict, s.reason("evil", "b"))
	s.with("victim", "a", true, map[string]string{"ome.io/ingress-domain-template": "two.example.com"})
	s.pass(time.Second) // the new route is accepted; the old route stays until the end of the hold
	assert.Equal(t, "victim/a", s.owner("one.example.com", "/"))
	assert.Equal(t, plan.ReasonHostConflict, s.reason("evil", "b"), "not Programmed while requests reach another service")
	s.pass(hold)
	assert.Equal(t, "evil/b", s.owner("one.example.com", "/"))
	s.pass(time.Second)
	assert.Equal(t, condition.ReasonProgrammed, s.reason("evil", "b"))
	assert.Equal(t, "victim/a", s.owner("two.example.com", "/"))
}

func TestADeletedServiceKeepsItsHostUntilItsRoutesAreGone(t *testing.T) {
	t.Parallel()
	s := newScene(t, "domainTemplate: 'one.example.com'\n")
	s.with("victim", "a", true, nil)
	s.with("evil", "b", true, nil)
	s.changing = cache.ObjectName{Namespace: "victim", Name: "a"}
	s.remove(s.service())
	s.settle()
	assert.Equal(t, "victim/a", s.owner("one.example.com", "/"))
	assert.Equal(t, plan.ReasonHostConflict, s.reason("evil", "b"))
	s.pass(0) // the garbage collector deletes the routes
	s.pass(0)
	assert.Equal(t, "evil/b", s.owner("one.example.com", "/"))
	assert.Equal(t, condition.ReasonProgrammed, s.reason("evil", "b"))
}
