package app

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/configmap"
	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/run"
	"fairlead.dev/services/ingress-reconciler/internal/config"
	"fairlead.dev/services/ingress-reconciler/internal/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func configMap(namespace, name, key, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{key: text}}
}

// startConfigMaps runs the stores of a cluster and waits until they have synced.
func startConfigMaps(t *testing.T, sources config.Sources, client *fake.Clientset) (c *configMaps, changes *atomic.Int32) {
	t.Helper()
	cfg := config.Default()
	cfg.Sources = sources
	recorder := events.New(events.Params{Client: client, Controller: name, Log: zap.NewNop(), Clock: clock.RealClock{}})
	c, changes = newConfigMaps(configMapParts{
		Config: cfg, Log: zap.NewNop(), Client: client, Events: recorder, Metrics: metrics.New(prometheus.NewRegistry()),
	}), &atomic.Int32{}
	synced := run.Synced(c.own, c.ome)
	for _, configured := range []configmap.Name{sources.ConfigMap, sources.OMEConfigMap} {
		if configured.Name != "" {
			require.ErrorContains(t, synced(t.Context()), configured.String())
		}
	}
	c.own.OnChange(func() { changes.Add(1) })
	c.ome.OnChange(func() { changes.Add(1) })
	ctx, cancel := context.WithCancel(t.Context())
	var stores sync.WaitGroup
	stores.Go(func() { c.own.Run(ctx) })
	stores.Go(func() { c.ome.Run(ctx) })
	t.Cleanup(func() { cancel(); stores.Wait() })
	require.Eventually(t, func() bool { return synced(t.Context()) == nil }, kubetest.Patience, time.Millisecond)
	return c, changes
}

func TestConfigMaps(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(
		configMap("fairlead", "ingress", "config", "ingressDomain: example.com"),
		configMap("ome", "inferenceservice-config", "ingress", `{"disableIngressCreation": true, "ingressDomain": "svc.cluster.test"}`),
	)
	sources := config.Sources{
		ConfigMap:    configmap.Name{Namespace: "fairlead", Name: "ingress"},
		OMEConfigMap: configmap.Name{Namespace: "ome", Name: "inferenceservice-config"}, ClusterDomain: "cluster.test",
	}
	c, changes := startConfigMaps(t, sources, client)
	current, problem := c.Current()
	assert.Empty(t, problem)
	assert.Equal(t, "example.com", *current.Document.IngressDomain)
	assert.True(t, current.Inherited.DisableIngressCreation)
	assert.Nil(t, current.Inherited.IngressDomain, "a domain inside the cluster counts as unset")
	assert.Equal(t, "cluster.test", current.ClusterDomain)
	assert.EqualValues(t, 2, changes.Load(), "each ConfigMap reports its changes")
}

func TestConfigMapsThatDoNotExist(t *testing.T) {
	t.Parallel()
	c, _ := startConfigMaps(t,
		config.Sources{
			ConfigMap: configmap.Name{Namespace: "fairlead", Name: "ingress"}, OMEConfigMap: configmap.Name{Namespace: "ome", Name: "c"},
		},
		fake.NewClientset())
	current, problem := c.Current()
	assert.Nil(t, current.Document)
	assert.Nil(t, current.Inherited)
	assert.Equal(t, "ConfigMap fairlead/ingress does not exist", problem)
}

func TestConfigMapsThatNoFlagNames(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	c, _ := startConfigMaps(t, config.Sources{}, client)
	current, problem := c.Current()
	assert.NotNil(t, current.Document, "the defaults are in force")
	assert.Empty(t, problem)
	assert.Empty(t, client.Actions(), "no ConfigMap is read")
}
