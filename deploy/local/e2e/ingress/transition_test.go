package ingress_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
)

const (
	hold = 5 * time.Second
	// A client that goes by an old name does so for the time that is announced. Marks are in whole seconds.
	known = hold - 1500*time.Millisecond
)

// moved is a service under load.
type moved struct {
	*system

	name types.NamespacedName
	at   entrance
	load *load
}

// assertTransitions changes how services are exposed while they are used, in every way.
func assertTransitions(t *testing.T, s *system) {
	s.namespace(t, "moving")
	s.configure(t, usual(int(hold/time.Second)), nil)
	t.Run("at once", func(t *testing.T) {
		for _, tt := range []struct {
			name string
			way  []entrance
		}{
			{name: "planes", way: []entrance{envoyRoute, traefikIngress, envoyRoute, traefikRoute, envoyRoute, nginxIngress, envoyRoute}},
			{name: "kinds", way: []entrance{traefikRoute, traefikIngress, traefikRoute, nginxIngress, traefikIngress, nginxIngress, traefikRoute}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				m := s.newMoved(t, tt.name, tt.way[0])
				for i, next := range tt.way[1:] {
					if testing.Short() && i > 1 {
						break
					}
					m.move(t, next)
				}
				m.load.finish(t)
			})
		}
		t.Run("a stream of over a minute", func(t *testing.T) {
			t.Parallel()
			s.assertLongStreams(t)
		})
		for _, e := range []entrance{envoyRoute, traefikIngress} {
			t.Run("components by "+e.name, func(t *testing.T) {
				if testing.Short() && e.name != envoyRoute.name {
					t.Skip("Traefik takes two seconds for each change")
				}
				t.Parallel()
				m := s.newMoved(t, "parts-"+e.name, e)
				m.changeComponents(t)
				m.disable(t)
				m.load.finish(t)
			})
		}
	})
}

// assertLongStreams has answers that say nothing for longer than a minute, by every entrance, while routes of others change.
func (s *system) assertLongStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a minute")
	}
	const pause = 65 * time.Second
	var streams errgroup.Group
	for _, e := range entrances {
		m := s.newMoved(t, "long-"+e.name, e)
		m.load.to() // the stream is all of it
		streams.Go(func() error {
			begun := time.Now()
			q := question{host: m.host(), target: completions + "?delay=20ms&events=3&pause=" + pause.String(), body: strings.NewReader("{}")}
			got, err := e.plane(s).ask(t.Context(), q)
			if err != nil || strings.Count(got.body, "data: ") != 3 {
				return fmt.Errorf("%s: after %s: %d %q: %w", e.name, time.Since(begun), got.status, got.body, err)
			}
			return nil
		})
	}
	assert.NoError(t, streams.Wait())
}

// component is one whose pods go on for a while when they are to end, as what leads to them is told of it meanwhile.
func component() fields {
	return fields{"runner": fields{"name": "server", "lifecycle": fields{"preStop": fields{"sleep": fields{"seconds": 3}}}}}
}

// newMoved makes a service that is exposed in some way, with a load on it.
func (s *system) newMoved(t *testing.T, name string, at entrance) *moved {
	t.Helper()
	m := &moved{system: s, name: types.NamespacedName{Namespace: "moving", Name: name}, at: at}
	s.override(t, m.name, at.values)
	require.NoError(t, s.create(t.Context(), m.name, nil, fields{"engine": component()}))
	s.awaitExposed(t, m.name, at.at)
	m.load = startLoad(t, m.host(), "^"+name+"-(engine|router)-")
	m.awaitAnswer(t, m.host(), "engine")
	m.load.to(at.plane(s))
	return m
}

func (m *moved) host() string { return m.name.Name + "." + m.name.Namespace + "." + domain }

// hostOf is the host of a component.
func (m *moved) hostOf(role string) string {
	return m.name.Name + "-" + role + "." + m.name.Namespace + "." + domain
}

// awaitAnswer waits until a host is answered by a component where the service is exposed now, or by nobody if there is none.
func (m *moved) awaitAnswer(t *testing.T, host, role string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		got, err := m.at.plane(m.system).ask(t.Context(), question{host: host, target: completions, body: strings.NewReader("{}")})
		require.NoError(collect, err)
		if role == "" {
			require.Equal(collect, "404", got.String())
			return
		}
		require.Equal(collect, completions, got.String())
		require.True(collect, strings.HasPrefix(got.echo.Name, m.name.Name+"-"+role+"-"), "%s is answered by %s", host, got.echo.Name)
	}, settle, tick)
}

// move has the service exposed by another entrance. Clients know the old one until the hold ends, and the new one once that
// is said to be and answers.
func (m *moved) move(t *testing.T, next entrance) {
	t.Helper()
	old, err := m.objects(t.Context(), m.name)
	require.NoError(t, err)
	before := m.at.plane(m.system)
	m.override(t, m.name, next.values)
	m.awaitExposed(t, m.name, next.at)
	expired := time.After(known)
	m.at = next
	m.awaitAnswer(t, m.host(), "engine")
	if after := next.plane(m.system); after != before {
		m.load.to(before, after)
		<-expired
		m.load.to(after)
	}
	m.awaitGone(t, old)
	assert.Empty(t, m.load.failed(), "to %s", next.name)
}

// awaitGone waits until objects have gone.
func (m *moved) awaitGone(t *testing.T, old []made) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		now, err := m.objects(t.Context(), m.name)
		require.NoError(collect, err)
		require.NotEmpty(collect, now)
		for _, o := range old {
			require.NotContains(collect, uids(now), o.GetUID(), "%s %s", o.GetKind(), o.GetName())
		}
	}, settle, tick)
}

// changeComponents adds components to the service and removes them. The object of the service as a whole stays the same.
func (m *moved) changeComponents(t *testing.T) {
	t.Helper()
	before, err := m.objects(t.Context(), m.name)
	require.NoError(t, err)
	spec := func(patch fields) { m.patch(t, inferenceServices, m.name, fields{"spec": patch}) }
	hosts := func(on bool) { m.override(t, m.name, m.at.with(fields{"componentHosts": on})) }

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
	hosts(false)
	m.awaitAnswer(t, m.hostOf("engine"), "")
	m.awaitExposed(t, m.name, m.at.at)
	spec(fields{"router": nil}) // OME deletes its Service at once: the route has to change before
	m.awaitAnswer(t, m.host(), "engine")
	after, err := m.objects(t.Context(), m.name)
	require.NoError(t, err)
	assert.ElementsMatch(t, uids(before), uids(after))
}

// disable has the service exposed no more, and again. It is not to be served meanwhile.
func (m *moved) disable(t *testing.T) {
	t.Helper()
	m.load.to()
	m.override(t, m.name, m.at.with(fields{"enabled": false}))
	m.awaitAnswer(t, m.host(), "")
	left, err := m.objects(t.Context(), m.name)
	require.NoError(t, err)
	assert.Empty(t, left)
	m.override(t, m.name, m.at.values)
	m.awaitExposed(t, m.name, m.at.at)
	m.awaitAnswer(t, m.host(), "engine")
	m.load.to(m.at.plane(m.system))
	more := m.load.answers(m.at.plane(m.system)) + streamEvery
	require.Eventually(t, func() bool { return m.load.answers(m.at.plane(m.system)) >= more }, settle, tick)
}
