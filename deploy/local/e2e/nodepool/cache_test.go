package nodepool_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/audit"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// classPrefix tells the processes of this test from those of others.
const classPrefix = "cached-"

// TestCache runs pools with the edge-cache. One Service has a pod in each pool.
func TestCache(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: TestOutage of package edge has pools with the cache that are cut off")
	}
	t.Parallel()
	s := newSystem(t)
	s.install("ingressClassPrefix=" + classPrefix)
	s.apply(strings.NewReplacer("ingressClassName: ", "ingressClassName: "+classPrefix).Replace(s.example("cache.yaml")))
	s.awaitReady("edge")
	for _, pool := range []string{hangzhou, shanghai} {
		s.assertServes(pool, host, nodeOf(pool))
	}
	stops := []func(){s.startLoad(hangzhou, host, nodeOf(hangzhou)), s.startLoad(shanghai, host, nodeOf(shanghai))}
	time.Sleep(3 * time.Second) // of load, in which no request may fail
	require.NoError(t, s.Component(t.Context(), clusterapi.APIServer, clusterapi.ActionStop))
	time.Sleep(8 * time.Second) // likewise
	assert.False(t, s.isUp(), "the API server")
	for _, stop := range stops {
		stop() // no request failed, and no pool used the pod of the other one
	}
	t.Run("Restart", func(t *testing.T) { s.in(t).testRestartOffline() })
	require.NoError(t, s.Component(t.Context(), clusterapi.APIServer, clusterapi.ActionStart))
	require.Eventually(t, func() bool { return s.isUp() }, kubetest.Patience, tick)
	s.awaitReady("edge")
	s.assertServes(hangzhou, host, nodeOf(hangzhou))
	t.Run("LeastPrivilege", func(t *testing.T) { s.in(t).testCachePrivilege() })
}

// isUp reports whether the API server answers.
func (s *system) isUp() bool {
	_, err := s.Clientset().CoreV1().Namespaces().Get(s.t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
	return err == nil
}

// testRestartOffline kills the Traefik and the cache of a pool while there is no API server. The kubelet starts them again, and the pool
// answers from its own pod.
func (s *system) testRestartOffline() {
	before := processes(s.t, "--ingress-class="+classPrefix+hangzhou)
	before = append(before, processes(s.t, "--providers.kubernetesIngress.ingressClass="+classPrefix+hangzhou)...)
	require.Len(s.t, before, 2, "the cache and Traefik")
	for _, pid := range before {
		require.NoError(s.t, syscall.Kill(pid, syscall.SIGKILL))
	}
	client := s.client(s.known[hangzhou], attempt)
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		now := processes(s.t, "--providers.kubernetesIngress.ingressClass="+classPrefix+hangzhou)
		require.Len(c, now, 1)
		require.NotContains(c, before, now[0])
		got, err := ask(s.t.Context(), client, host)
		require.NoError(c, err)
		require.Equal(c, answer{status: http.StatusOK, from: nodeOf(hangzhou)}, got)
	}, kubetest.Patience, tick)
}

// processes returns the ids of the processes with an argument.
func processes(t *testing.T, argument string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var ids []int
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || bytes.HasPrefix(line, []byte("/proc/self/exe")) {
			continue // it has ended, or starts a container
		}
		for _, field := range bytes.Split(line, []byte{0}) {
			if string(field) == argument {
				id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				require.NoError(t, err)
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// unwritten is the permission of Traefik that this test does not use.
var unwritten = map[string]string{"update networking.k8s.io/ingresses/status": "a Service of the type NodePort has no address that Traefik could write"}

// testCachePrivilege compares the permissions of the cache and of Traefik, which have one ServiceAccount, with their requests.
func (s *system) testCachePrivilege() {
	audit.AssertLeastPrivilege(s.t, s.Cluster, audit.LeastPrivilege{
		Program: audit.Program{
			Account:  types.NamespacedName{Namespace: namespace, Name: "ingress-" + hangzhou},
			Selector: "app.kubernetes.io/instance=" + operator + ",app.kubernetes.io/component in (traefik,cache)",
		},
		Seldom: unwritten,
	})
}
