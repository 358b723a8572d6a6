package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/pki"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

func TestUntil_CallsUntilItSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, started := 0, time.Now()
		require.NoError(t, until(t.Context(), time.Minute, func(ctx context.Context) error {
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, started.Add(time.Minute), deadline)
			if calls++; calls < 4 {
				return errors.New("not yet")
			}
			return nil
		}))
		assert.Equal(t, 4, calls)
		assert.Equal(t, 3*pollInterval, time.Since(started))
	})
}

func TestUntil_ReturnsTheLastErrorAtItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		last, started := errors.New("last"), time.Now()
		err := until(t.Context(), time.Minute, func(context.Context) error {
			if time.Since(started) < 59*time.Second {
				return errors.New("early")
			}
			return last
		})
		require.ErrorIs(t, err, last)
		assert.Equal(t, time.Minute, time.Since(started))
	})
}

func TestUntil_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started, failed := time.Now(), errors.New("failed")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, until(ctx, time.Minute, func(context.Context) error { return failed }), failed)
		assert.Equal(t, time.Second, time.Since(started))
	})
}

// machine is a node of the API with conditions.
func machine(name string, conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: conditions}}
}

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
	return corev1.NodeCondition{Type: kind, Status: status}
}

func TestWaitNodes(t *testing.T) {
	t.Parallel()
	ready, pressed := condition(corev1.NodeReady, corev1.ConditionTrue), condition(corev1.NodeMemoryPressure, corev1.ConditionTrue)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}}
	tests := []struct {
		name    string
		give    []runtime.Object
		wantErr string
	}{
		{name: "all ready", give: []runtime.Object{account, machine("a", ready), machine("b", pressed, ready)}},
		{name: "one has not come", give: []runtime.Object{account, machine("a", ready)}, wantErr: "1 of 2 nodes ready"},
		{name: "one is not ready", give: []runtime.Object{account, machine("a", ready), machine("b", condition(corev1.NodeReady, corev1.ConditionFalse))},
			wantErr: "1 of 2 nodes ready"},
		{name: "none is known to be ready", give: []runtime.Object{account, machine("a", condition(corev1.NodeReady, corev1.ConditionUnknown)), machine("b", pressed)},
			wantErr: "0 of 2 nodes ready"},
		{name: "no pod can be made", give: []runtime.Object{machine("a", ready), machine("b", ready)}, wantErr: `serviceaccounts "default" not found`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &cluster{client: fake.NewClientset(tt.give...), nodes: make([]*node, 2)}
				started := time.Now()
				err := c.waitNodes(t.Context())
				if tt.wantErr == "" {
					require.NoError(t, err)
					assert.Zero(t, time.Since(started))
					return
				}
				require.ErrorContains(t, err, "wait for nodes: ")
				require.ErrorContains(t, err, tt.wantErr)
				assert.Equal(t, nodesTimeout, time.Since(started))
			})
		})
	}
}

func TestWaitNodes_GoesOnAfterAnErrorOfTheAPI(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "default"}})
		failures := 3
		client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("no leader")
		})
		require.NoError(t, (&cluster{client: client}).waitNodes(t.Context()))
		assert.Equal(t, -1, failures)
	})
}

func TestHasSynced(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, give string
		wantErr    string
	}{
		{name: "it has", give: "other 1\n" + proxySynced + "1.7e+09\n"},
		{name: "not yet", give: proxySynced + "0\n", wantErr: "it has not written its rules yet"},
		{name: "another family", give: strings.Replace(proxySynced, "IPv4", "IPv6", 1) + "1.7e+09\n", wantErr: "it has not written its rules yet"},
		{name: "nothing", wantErr: "it has not written its rules yet"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := api(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.give) })
			err := hasSynced(t.Context(), server.URL)
			if tt.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.wantErr)
		})
	}
}

// api is an API server that serves nothing but what h does.
func api(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

func clientOf(t *testing.T, server *httptest.Server) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: server.URL, QPS: -1}, server.Client())
	require.NoError(t, err)
	return client
}

// ready answers as an API server that has created its own objects.
func ready(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"}`)
	}
}

func TestWaitAPI_AsksUntilItIsReady(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := api(t, func(w http.ResponseWriter, r *http.Request) {
		switch n := asked.Add(1); {
		case n < 3:
			w.WriteHeader(http.StatusInternalServerError)
		case r.URL.Path == "/readyz":
		case n < 5:
			w.WriteHeader(http.StatusNotFound)
		default:
			ready(w, r)
		}
	})
	c := &cluster{client: clientOf(t, server)}
	ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
	defer cancel()
	require.NoError(t, c.waitAPI(ctx))
	assert.EqualValues(t, 6, asked.Load())
}

func TestWaitAPI_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := api(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "etcd is away", http.StatusInternalServerError)
		cancel()
	})
	c := &cluster{client: clientOf(t, server)}
	require.ErrorContains(t, c.waitAPI(ctx), "wait for the API server: ")
}

// withKubeconfig gives the control process a kubeconfig for a server.
func withKubeconfig(t *testing.T, server *httptest.Server) *cluster {
	t.Helper()
	c := &cluster{Handover: Handover{Config: clusterapi.Config{Dir: t.TempDir()}}}
	require.NoError(t, os.Mkdir(components.PKIDir(c.Config.Dir), 0o700))
	ca, err := pki.New(components.PKIDir(c.Config.Dir))
	require.NoError(t, err)
	require.NoError(t, ca.Kubeconfig(pki.User{Leaf: pki.Leaf{Name: components.UserControl, CommonName: "localkube"}, Server: server.URL}))
	return c
}

func TestApplyRootlessPolicy_ReportsARefusal(t *testing.T) {
	t.Parallel()
	server := api(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	require.ErrorContains(t, withKubeconfig(t, server).applyRootlessPolicy(t.Context()), "apply rootless policy: ")
}
