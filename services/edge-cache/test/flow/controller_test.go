//go:build system

package flow

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/edge-cache/internal/config"
)

// leads runs for the Lease of a controller as its client does, until the test ends, and reports whether it leads.
func (e *edge) leads(identity string) *atomic.Bool {
	e.t.Helper()
	client := e.client()
	leading := &atomic.Bool{}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "ingress", Name: "controller"}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 4 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leading.Store(true) }, OnStoppedLeading: func() { leading.Store(false) },
		},
	})
	require.NoError(e.t, err)
	ctx, cancel := context.WithCancel(e.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			elector.Run(ctx)
		}
	}()
	e.t.Cleanup(func() { cancel(); <-done })
	return leading
}

// TestWritesOfAController elects a leader and writes the status of an Ingress through the cache. During an outage nothing counts as
// written: the controller gives the Lease up, and the status is an error. Afterwards both are written.
func TestWritesOfAController(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.namespace("ingress")
	w.ingress("site", "edge", "")
	e := w.edge("edge", func(c *config.Config) { c.Client.Profile = "ingress-nginx" }).ready()
	leading := e.leads("one")
	require.Eventually(t, leading.Load, kubetest.Patience, tick)
	lease := func() string {
		l, err := w.direct.CoordinationV1().Leases("ingress").Get(t.Context(), "controller", metav1.GetOptions{})
		require.NoError(t, err)
		return *l.Spec.HolderIdentity + " " + l.Spec.RenewTime.String()
	}
	assert.Contains(t, lease(), "one ")
	status := func(address string) error {
		i, err := e.client().NetworkingV1().Ingresses("default").Get(t.Context(), "site", metav1.GetOptions{ResourceVersion: "0"})
		require.NoError(t, err)
		i.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: address}}
		_, err = e.client().NetworkingV1().Ingresses("default").UpdateStatus(t.Context(), i, metav1.UpdateOptions{})
		return err
	}
	stored := func() string {
		i, err := w.direct.NetworkingV1().Ingresses("default").Get(t.Context(), "site", metav1.GetOptions{})
		require.NoError(t, err)
		return i.Status.LoadBalancer.Ingress[0].IP
	}
	require.NoError(t, status("192.0.2.1"))
	assert.Equal(t, "192.0.2.1", stored())

	w.network.set(linkCut)
	require.Eventually(t, func() bool { return !leading.Load() }, kubetest.Patience, tick, "it leads although no Lease was renewed")
	before := lease()
	require.Eventually(t, func() bool { return apierrors.IsServiceUnavailable(status("192.0.2.2")) }, kubetest.Patience, tick)
	assert.Equal(t, "192.0.2.1", stored())
	assert.Equal(t, before, lease())
	assert.False(t, leading.Load())

	w.network.set(linkUp)
	require.Eventually(t, leading.Load, kubetest.Patience, tick)
	require.Eventually(t, func() bool { return status("192.0.2.3") == nil }, kubetest.Patience, tick)
	assert.Equal(t, "192.0.2.3", stored())
	assert.NotEqual(t, before, lease())
}

// ingress makes an Ingress of a class, with TLS if secret is not empty.
func (w *world) ingress(name, class, secret string) {
	w.t.Helper()
	backend := networkingv1.IngressBackend{
		Service: &networkingv1.IngressServiceBackend{Name: "a", Port: networkingv1.ServiceBackendPort{Number: 80}},
	}
	i := &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       networkingv1.IngressSpec{IngressClassName: &class, DefaultBackend: &backend},
	}
	if secret != "" {
		i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{name + ".example.com"}, SecretName: secret}}
	}
	_, err := w.direct.NetworkingV1().Ingresses("default").Create(w.t.Context(), i, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// secret makes a Secret whose content names it.
func (w *world) secret(name string) {
	w.t.Helper()
	_, err := w.direct.CoreV1().Secrets("default").Create(w.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"tls.key": []byte("content of " + name)},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// TestSecretsOfTheClass reads Secrets through the cache. Only those that an Ingress of the class names exist there and on the disk, and
// they come and go with the Ingress, online and after a restart without the API server.
func TestSecretsOfTheClass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	for _, name := range []string{"mine", "theirs", "loose"} {
		w.secret(name)
	}
	w.ingress("mine", "edge", "mine")
	w.ingress("theirs", "other", "theirs")
	e := w.edge("edge").ready()
	requireSecrets := func(want ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			list, err := e.client().CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
			require.NoError(c, err)
			var got []string
			for i := range list.Items {
				got = append(got, list.Items[i].Name)
				assert.Equal(c, "content of "+list.Items[i].Name, string(list.Items[i].Data["tls.key"]))
			}
			assert.ElementsMatch(c, want, got)
		}, kubetest.Patience, tick)
	}
	requireSecrets("mine")
	for _, name := range []string{"theirs", "loose"} {
		_, err := e.client().CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%s: %v", name, err)
	}
	w.ingress("late", "edge", "loose")
	requireSecrets("mine", "loose")
	require.NoError(t, w.direct.NetworkingV1().Ingresses("default").Delete(t.Context(), "mine", metav1.DeleteOptions{}))
	requireSecrets("loose")

	require.Eventually(t, func() bool { return e.onDisk("content of loose") }, kubetest.Patience, tick) // an erasure replaces files
	require.Eventually(t, func() bool { return !e.onDisk("content of mine") }, kubetest.Patience, 10*tick,
		"what is not wanted anymore leaves the disk")

	w.network.set(linkCut)
	e.restart()
	e.ready()
	requireSecrets("loose")
	e.stop()
	assert.False(t, e.onDisk("content of theirs"))
}

// onDisk reports whether a file of the cache has some content. Files come and go meanwhile.
func (e *edge) onDisk(content string) bool {
	e.t.Helper()
	found := false
	_ = filepath.WalkDir(e.cfg.Data.Dir, func(path string, _ os.DirEntry, _ error) error {
		raw, _ := os.ReadFile(path)
		found = found || bytes.Contains(raw, []byte(content))
		return nil
	})
	return found
}
