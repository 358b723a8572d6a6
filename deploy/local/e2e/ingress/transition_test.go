package ingress_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

const (
	// Data planes must serve the new objects before the hold ends. At half of it two busy cores do not always manage that.
	hold = 8 * time.Second
	// Clients stop using an old entrance so long before its objects are deleted.
	margin = time.Second
)

// moved is a service under load.
type moved struct {
	*system

	name types.NamespacedName
	at   entrance
	load *load
}

// moves are the entrances through which services move, one after the other: together from each entrance to each other one.
var moves = map[string][]entrance{
	"envoy":         {envoyRoute, traefikIngress, traefikRoute, nginxIngress},
	"nginx":         {nginxIngress, envoyRoute, traefikRoute, traefikIngress},
	"traefik-class": {traefikIngress, nginxIngress, traefikIngress, envoyRoute},
	"traefik-route": {traefikRoute, envoyRoute, nginxIngress, traefikRoute},
}

// assertMoves moves services from one entrance to the next, under load.
func assertMoves(t *testing.T, s *system) {
	for name, way := range moves {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := s.newMoved(t, name, way[0])
			for _, next := range way[1:] {
				m.move(t, next)
			}
			m.load.finish(t)
		})
	}
}

// assertComponents adds and removes components of a service, and disables and enables it, under load.
func assertComponents(t *testing.T, s *system, e entrance) {
	m := s.newMoved(t, "parts-"+e.name, e)
	m.changeComponents(t)
	m.disable(t)
	m.load.finish(t)
}

// streamPause is longer than the minute after which ingress-nginx, Traefik and clouds break off streams by default.
const streamPause = 65 * time.Second

// startLongStreams opens a stream at each entrance that sends nothing for more than a minute. The returned function waits for
// their ends. Meanwhile other tests change the routes of other services, and replace the configuration and the leader.
func (s *system) startLongStreams(t *testing.T) (wait func(*testing.T)) {
	t.Helper()
	const namespace = "streaming"
	s.namespace(t, namespace)
	var streams errgroup.Group
	for _, e := range entrances {
		name := types.NamespacedName{Namespace: namespace, Name: e.name}
		s.overrideForGood(t, name, e.values)
		require.NoError(t, s.create(t.Context(), name, nil, fields{"engine": component()}))
	}
	for _, e := range entrances {
		m := &moved{system: s, name: types.NamespacedName{Namespace: namespace, Name: e.name}, at: e}
		s.awaitExposed(t, m.name, e.at)
		m.awaitAnswer(t, m.host(), "engine")
		streams.Go(func() error {
			begun := time.Now()
			q := question{host: m.host(), target: completions + "?delay=20ms&events=3&pause=" + streamPause.String(), body: unsized([]byte("{}"))}
			got, err := e.plane(s).ask(t.Context(), q)
			if err != nil || strings.Count(got.body, "data: ") != 3 {
				return fmt.Errorf("%s: after %s: %d %q: %w", e.name, time.Since(begun), got.status, got.body, err)
			}
			return nil
		})
	}
	return func(t *testing.T) { assert.NoError(t, streams.Wait()) }
}

// component returns a component whose pods keep serving for some seconds after they are deleted, as data planes learn of the
// deletion meanwhile.
func component() fields {
	return fields{"runner": fields{"name": "server", "lifecycle": fields{"preStop": fields{"sleep": fields{"seconds": 3}}}}}
}

// newMoved creates a service that is exposed in some way, with a load on it.
func (s *system) newMoved(t *testing.T, name string, at entrance) *moved {
	t.Helper()
	m := &moved{system: s, name: types.NamespacedName{Namespace: "moving-" + name, Name: name}, at: at}
	s.namespace(t, m.name.Namespace)
	s.override(t, m.name, at.values)
	require.NoError(t, s.create(t.Context(), m.name, nil, fields{"engine": component()}))
	s.awaitExposed(t, m.name, at.at)
	m.load = startLoad(t, m.host(), "^"+name+"-(engine|router)-")
	m.awaitAnswer(t, m.host(), "engine")
	m.load.switchTo(at.plane(s))
	return m
}

func (m *moved) host() string { return m.name.Name + "." + m.name.Namespace + "." + domain }

// hostOf returns the host of a component.
func (m *moved) hostOf(role string) string {
	return m.name.Name + "-" + role + "." + m.name.Namespace + "." + domain
}

// awaitAnswer waits until a component answers the requests for a host, at the present entrance of the service. Without a
// component it waits until nothing serves the host.
func (m *moved) awaitAnswer(t *testing.T, host, role string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		got, err := m.at.plane(m.system).try(t.Context(), question{host: host, target: completions, body: strings.NewReader("{}")})
		require.NoError(collect, err)
		if role == "" {
			require.Equal(collect, "404", got.String())
			return
		}
		require.Equal(collect, completions, got.String())
		require.True(collect, strings.HasPrefix(got.echo.Name, m.name.Name+"-"+role+"-"), "%s is answered by %s", host, got.echo.Name)
	}, kubetest.Patience, tick)
}

// move changes the entrance of the service. Clients use the old entrance until the hold ends, and the new one as soon as the
// condition names it and it answers.
func (m *moved) move(t *testing.T, next entrance) {
	t.Helper()
	old, err := m.objects(t.Context(), m.name)
	require.NoError(t, err)
	before := m.at.plane(m.system)
	m.override(t, m.name, next.values)
	m.awaitExposed(t, m.name, next.at)
	m.at = next
	m.awaitAnswer(t, m.host(), "engine")
	if after := next.plane(m.system); after != before {
		m.load.switchTo(before, after)
		time.Sleep(time.Until(m.deletion(t, old).Add(-margin)))
		m.load.switchTo(after)
	}
	m.awaitGone(t, old)
	if after := next.plane(m.system); after != before { // else the next move might be answered by the object of this one
		m.awaitNotServed(t, before)
	}
	assert.Empty(t, m.load.failed(), "to %s", next.name)
}

// awaitNotServed waits until a data plane does not serve the service.
func (m *moved) awaitNotServed(t *testing.T, plane *world) {
	t.Helper()
	plane.await(t, m.host(), completions, "404")
}

// deletion waits until objects are marked as superseded, and returns the time at which the first is deleted.
func (m *moved) deletion(t *testing.T, old []made) (first time.Time) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		now, err := m.objects(t.Context(), m.name)
		require.NoError(collect, err)
		first = time.Time{}
		for i := range now {
			if !slices.Contains(uids(old), now[i].GetUID()) {
				continue
			}
			marked, err := time.Parse(time.RFC3339, now[i].GetAnnotations()["fairlead.dev/superseded-at"])
			require.NoError(collect, err, "%s %s", now[i].GetKind(), now[i].GetName())
			if end := marked.Add(hold); first.IsZero() || end.Before(first) {
				first = end
			}
		}
		require.NotZero(collect, first, "the old objects are gone before the hold began")
	}, kubetest.Patience, tick)
	return first
}

// awaitGone waits until objects are deleted.
func (m *moved) awaitGone(t *testing.T, old []made) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		now, err := m.objects(t.Context(), m.name)
		require.NoError(collect, err)
		require.NotEmpty(collect, now)
		for _, o := range old {
			require.NotContains(collect, uids(now), o.GetUID(), "%s %s", o.GetKind(), o.GetName())
		}
	}, kubetest.Patience, tick)
}

// changeComponents adds components to the service and removes them. The object that exposes the entry stays the same.
func (m *moved) changeComponents(t *testing.T) {
	t.Helper()
	before, err := m.objects(t.Context(), m.name)
	require.NoError(t, err)
	spec := func(patch fields) { m.patch(t, inferenceServices, m.name, fields{"spec": patch}) }
	hosts := func(enabled bool) { m.override(t, m.name, m.at.with(fields{"componentHosts": enabled})) }

	spec(fields{"router": component()})
	m.awaitAnswer(t, m.host(), "router")
	spec(fields{"decoder": component()})
	hosts(true)
	m.awaitAnswer(t, m.hostOf("decoder"), "decoder")
	m.awaitAnswer(t, m.hostOf("engine"), "engine")
	m.awaitAnswer(t, m.hostOf("router"), "")
	hosts(false)
	m.awaitAnswer(t, m.hostOf("decoder"), "")
	m.awaitAnswer(t, m.hostOf("engine"), "")
	hosts(true)
	m.awaitAnswer(t, m.hostOf("decoder"), "decoder")
	spec(fields{"decoder": nil})
	m.awaitAnswer(t, m.hostOf("decoder"), "")
	m.removeRouter(t)
	m.awaitNoService(t, m.name.Name+"-router")
	after, err := m.objects(t.Context(), m.name)
	require.NoError(t, err)
	assert.ElementsMatch(t, uids(before), uids(after))
}

// removeRouter removes the hosts of components, and then the router while OME is paused. Without the Service of the router, data planes answer 500. OME deletes the Service
// when the router leaves the specification: the route must change for that alone, and not when the Service is gone. Only a leader that
// saw the router in the specification knows that it left: the one that removes the hosts.
func (m *moved) removeRouter(t *testing.T) {
	t.Helper()
	m.term.Lock()
	defer m.term.Unlock()
	m.override(t, m.name, m.at.with(fields{"componentHosts": false}))
	m.awaitAnswer(t, m.hostOf("engine"), "")
	m.awaitExposed(t, m.name, m.at.at)
	resume := m.pauseOME(t)
	m.patch(t, inferenceServices, m.name, fields{"spec": fields{"router": nil}})
	m.awaitAnswer(t, m.host(), "engine")
	resume()
}

// pauseOME stops the process of OME until the returned function is called, or the test ends.
func (s *system) pauseOME(t *testing.T) (resume func()) {
	t.Helper()
	s.NeedsOwn(t, "pauses a process")
	pods, err := s.Clientset().CoreV1().Pods(stack.OMENamespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	pid, err := stack.ProcessOf(pods.Items[0].Name)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	resume = sync.OnceFunc(func() { require.NoError(t, syscall.Kill(pid, syscall.SIGCONT)) })
	t.Cleanup(resume)
	return resume
}

// awaitNoService waits until a Service is deleted.
func (m *moved) awaitNoService(t *testing.T, name string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		_, err := m.Clientset().CoreV1().Services(m.name.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.True(collect, apierrors.IsNotFound(err), "%v", err)
	}, kubetest.Patience, tick)
}

// disable turns the service off and on again. No request reaches it meanwhile.
func (m *moved) disable(t *testing.T) {
	t.Helper()
	m.load.switchTo()
	m.override(t, m.name, m.at.with(fields{"enabled": false}))
	m.awaitAnswer(t, m.host(), "")
	left, err := m.objects(t.Context(), m.name)
	require.NoError(t, err)
	assert.Empty(t, left)
	m.override(t, m.name, m.at.values)
	m.awaitExposed(t, m.name, m.at.at)
	m.awaitAnswer(t, m.host(), "engine")
	m.load.switchTo(m.at.plane(m.system))
	more := m.load.answers(m.at.plane(m.system)) + streamEvery
	require.Eventually(t, func() bool { return m.load.answers(m.at.plane(m.system)) >= more }, kubetest.Patience, tick)
}
