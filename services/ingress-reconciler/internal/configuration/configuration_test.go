package configuration

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zapobserver "go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ours = cache.ObjectName{Namespace: "fairlead", Name: "ingress"}
	omes = cache.ObjectName{Namespace: "ome", Name: "inferenceservice-config"}
)

func configMap(name cache.ObjectName, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "uid"}, Data: data}
}

// world is a cluster with ConfigMaps, and what is told of them.
type world struct {
	*fake.Clientset

	store *Store
	logs  *zapobserver.ObservedLogs

	mu      sync.Mutex
	events  []string
	gauges  map[string]string // by ConfigMap, what is wrong with it
	changes int
}

// start runs a Store, and waits until it has read what there is.
func start(t *testing.T, p Params, maps ...*corev1.ConfigMap) *world {
	t.Helper()
	w := &world{Clientset: fake.NewClientset(), gauges: map[string]string{}}
	for _, cm := range maps {
		w.write(t, cm)
	}
	core, logs := zapobserver.New(zapcore.DebugLevel)
	p.Log, p.Client, p.ClusterDomain, p.Reporter, p.Observer = zap.New(core), w, "cluster.local", w, w
	w.store, w.logs = New(p), logs
	w.store.OnChange(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changes++
	})
	if len(maps) > 0 {
		assert.False(t, w.store.HasSynced(), "before it runs")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.store.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	w.eventually(t, w.store.HasSynced)
	w.eventually(t, func() bool { return w.watches() == len(w.store.informers) }) // the fake forgets what comes before
	return w
}

func (w *world) watches() int {
	n := 0
	for _, a := range w.Actions() {
		if a.Matches("watch", "configmaps") {
			n++
		}
	}
	return n
}

func both() Params { return Params{Ours: ours, OME: omes} }

// Event implements reporter.
func (w *world) Event(about *corev1.ObjectReference, kind, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, strings.Join([]string{about.Kind, about.Namespace + "/" + about.Name, kind, reason, message}, " "))
}

// Configured implements observer.
func (w *world) Configured(name, problem string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gauges[name] = problem
}

func (w *world) told() (events []string, changes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.events...), w.changes
}

func (w *world) write(t *testing.T, cm *corev1.ConfigMap) {
	t.Helper()
	client := w.CoreV1().ConfigMaps(cm.Namespace)
	_, err := client.Update(t.Context(), cm, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(t.Context(), cm, metav1.CreateOptions{})
	}
	require.NoError(t, err)
}

// edit writes a text of ours, and waits until it was read.
func (w *world) edit(t *testing.T, name cache.ObjectName, data map[string]string) {
	t.Helper()
	_, before := w.told()
	w.write(t, configMap(name, data))
	w.eventually(t, func() bool {
		_, now := w.told()
		return now > before
	})
}

func (w *world) eventually(t *testing.T, happens func() bool) {
	t.Helper()
	require.Eventually(t, happens, 10*time.Second, time.Millisecond)
}

func (w *world) domain(t *testing.T) string {
	t.Helper()
	c, _ := w.store.Current()
	require.NotNil(t, c.Document)
	require.NotNil(t, c.Document.IngressDomain)
	return *c.Document.IngressDomain
}

func TestYAMLAndJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"ingressDomain: example.com\nenableGatewayApi: true", "ingressDomain: example.com\nenableGatewayAPI: true",
		`{"ingressDomain": "example.com", "enableGatewayApi": true}`, `{"ingressDomain": "example.com", "enableGatewayAPI": true}`,
	} {
		w := start(t, both(), configMap(ours, map[string]string{"config": text}))
		c, problem := w.store.Current()
		assert.Empty(t, problem)
		assert.Equal(t, "example.com", w.domain(t))
		assert.True(t, *c.Document.EnableGatewayAPI)
		assert.Nil(t, c.Inherited, "there is no OME")
		events, changes := w.told()
		assert.Equal(t, []string{"ConfigMap fairlead/ingress Normal ConfigurationLoaded the configuration is in force"}, events)
		assert.Equal(t, 1, changes)
	}
}

func TestABadEditKeepsTheLastGoodOne(t *testing.T) {
	t.Parallel()
	w := start(t, both(), configMap(ours, map[string]string{"config": "ingressDomain: example.com"}))

	w.edit(t, ours, map[string]string{"config": "ingressDomain: [\nx"})
	assert.Equal(t, "example.com", w.domain(t))
	_, problem := w.store.Current()
	assert.Contains(t, problem, "ConfigMap fairlead/ingress: parse configuration: ")
	assert.NotContains(t, problem, "\n")
	assert.Contains(t, w.gauges["fairlead/ingress"], "parse configuration: ")

	w.edit(t, ours, map[string]string{"config": "ingressDomain: '*.example.com'\nurlScheme: ftp"})
	_, problem = w.store.Current()
	assert.Contains(t, problem, "; urlScheme: ", "all that is wrong, in one line")

	w.edit(t, ours, map[string]string{"other": "x"})
	assert.Equal(t, "example.com", w.domain(t))
	_, problem = w.store.Current()
	assert.Equal(t, `ConfigMap fairlead/ingress: it has no key "config"`, problem)

	w.edit(t, ours, map[string]string{"config": ""})
	c, problem := w.store.Current()
	assert.Empty(t, problem, "an empty text is one")
	assert.Nil(t, c.Document.IngressDomain)

	w.edit(t, ours, map[string]string{"config": "ingressDomain: example.org"})
	assert.Equal(t, "example.org", w.domain(t))
	_, problem = w.store.Current()
	assert.Empty(t, problem)
	assert.Empty(t, w.gauges["fairlead/ingress"])
	assert.Equal(t, 3, w.logs.FilterMessage("Refused a configuration, what was in force stays so").Len())
	assert.Equal(t, 3, w.logs.FilterMessage("Loaded configuration").Len())
}

func TestOneEventForEachText(t *testing.T) {
	t.Parallel()
	w := start(t, both(), configMap(ours, map[string]string{"config": "ingressDomain: a"}))
	for _, label := range []string{"a", "b"} {
		cm := configMap(ours, map[string]string{"config": "ingressDomain: a", "other": label})
		cm.Labels = map[string]string{"edited": label}
		w.write(t, cm)
	}
	w.edit(t, ours, map[string]string{"config": "ingressDomain: b"})
	events, changes := w.told()
	require.Len(t, events, 2, "other keys and labels are nothing to us")
	assert.Equal(t, 2, changes)
	for i, host := range []string{`"a"`, `"b"`} {
		assert.Contains(t, events[i], "ConfigMap fairlead/ingress Warning InvalidConfiguration ")
		assert.Contains(t, events[i], host)
		assert.Contains(t, events[i], "; what was in force stays so")
	}
}

func TestWhatNobodyKnowsIsAWarning(t *testing.T) {
	t.Parallel()
	w := start(t, both(), configMap(ours, map[string]string{"config": "ingressDomain: example.com\ningresClass: x"}))
	assert.Equal(t, "example.com", w.domain(t))
	warnings := w.logs.FilterMessage("Passed over a part of the configuration").All()
	require.Len(t, warnings, 1)
	assert.Equal(t, `unknown field "ingresClass"`, warnings[0].ContextMap()["warning"])
	assert.Equal(t, "fairlead/ingress", warnings[0].ContextMap()["configMap"])
	events, _ := w.told()
	assert.Equal(t, []string{
		`ConfigMap fairlead/ingress Warning UnknownConfiguration passed over a part of the configuration: unknown field "ingresClass"`,
		"ConfigMap fairlead/ingress Normal ConfigurationLoaded the configuration is in force",
	}, events)
}

func TestAConfigMapThatIsGone(t *testing.T) {
	t.Parallel()
	w := start(t, both(), configMap(ours, map[string]string{"config": "ingressDomain: example.com"}), configMap(omes, map[string]string{"ingress": `{"disableIngressCreation": true}`}))
	for _, name := range []cache.ObjectName{ours, omes} {
		require.NoError(t, w.CoreV1().ConfigMaps(name.Namespace).Delete(t.Context(), name.Name, metav1.DeleteOptions{}))
	}
	w.eventually(t, func() bool {
		_, changes := w.told()
		return changes == 4
	})
	assert.Equal(t, "example.com", w.domain(t), "it may be on its way back")
	c, problem := w.store.Current()
	assert.True(t, c.Inherited.DisableIngressCreation)
	assert.Equal(t, "ConfigMap fairlead/ingress is gone", problem)
	assert.Equal(t, "ConfigMap ome/inferenceservice-config is gone", w.gauges["ome/inferenceservice-config"])
	assert.Equal(t, 2, w.logs.FilterMessage("A ConfigMap is gone, what was in force stays so").Len())

	w.edit(t, omes, map[string]string{"ingress": `{"disableIngressCreation": true}`})
	w.edit(t, ours, map[string]string{"config": "ingressDomain: example.com"})
	assert.Equal(t, "example.com", w.domain(t))
	_, problem = w.store.Current()
	assert.Empty(t, problem, "with what they said before")
}

func TestABadConfigMapThatIsGone(t *testing.T) {
	t.Parallel()
	w := start(t, both(), configMap(ours, map[string]string{"config": ""}), configMap(omes, map[string]string{"ingress": "{"}))
	c, _ := w.store.Current()
	assert.Nil(t, c.Document, "who makes routes is not known")
	require.NoError(t, w.CoreV1().ConfigMaps(omes.Namespace).Delete(t.Context(), omes.Name, metav1.DeleteOptions{}))
	w.eventually(t, func() bool {
		c, problem := w.store.Current()
		return c.Document != nil && problem == ""
	})
}

func TestAConfigMapThatWasNeverThere(t *testing.T) {
	t.Parallel()
	w := start(t, both())
	c, problem := w.store.Current()
	assert.Nil(t, c.Document, "services stay as they are")
	assert.Equal(t, "there is no ConfigMap fairlead/ingress", problem)

	w.edit(t, ours, map[string]string{"config": "ingressDomain: ["})
	c, problem = w.store.Current()
	assert.Nil(t, c.Document, "nor was there a good one")
	assert.Contains(t, problem, "parse configuration: ")

	w.edit(t, ours, map[string]string{"config": "ingressDomain: example.com"})
	assert.Equal(t, "example.com", w.domain(t))
	kubetest.AssertWrites(t, w, // it writes neither; these are ours
		kubetest.Action{Verb: "update", Resource: "configmaps", Namespace: "fairlead", Name: "ingress"},
		kubetest.Action{Verb: "create", Resource: "configmaps", Namespace: "fairlead", Name: "ingress"},
		kubetest.Action{Verb: "update", Resource: "configmaps", Namespace: "fairlead", Name: "ingress"})
}

func TestWithoutAConfigMapOfOurs(t *testing.T) {
	t.Parallel()
	w := start(t, Params{OME: omes}, configMap(omes, map[string]string{"ingress": `{"ingressDomain": "example.com", "enableGatewayApi": true}`}))
	c, problem := w.store.Current()
	assert.NotNil(t, c.Document, "OME's alone holds")
	assert.Equal(t, "example.com", *c.Inherited.IngressDomain)
	assert.True(t, *c.Inherited.EnableGatewayAPI)
	assert.Empty(t, problem)

	alone := start(t, Params{})
	c, problem = alone.store.Current()
	assert.NotNil(t, c.Document)
	assert.Nil(t, c.Inherited)
	assert.Empty(t, problem)
}

func TestWhatIsNotJSONOfOMEs(t *testing.T) {
	t.Parallel()
	good := configMap(ours, map[string]string{"config": "ingressDomain: example.com"})
	w := start(t, both(), good, configMap(omes, map[string]string{"ingress": "ingressDomain: example.com"}))
	c, problem := w.store.Current()
	assert.Nil(t, c.Document, "who makes routes is not known")
	assert.Contains(t, problem, "ConfigMap ome/inferenceservice-config: parse OME's configuration of ingress: ")

	w.edit(t, omes, map[string]string{"ingress": `{"disableIngressCreation": true}`})
	c, problem = w.store.Current()
	assert.NotNil(t, c.Document)
	assert.Empty(t, problem)

	w.edit(t, omes, map[string]string{"ingress": "{"})
	c, problem = w.store.Current()
	assert.NotNil(t, c.Document, "there is a last good one")
	assert.True(t, c.Inherited.DisableIngressCreation)
	assert.NotEmpty(t, problem)

	w.edit(t, ours, map[string]string{"config": "["})
	_, problem = w.store.Current()
	assert.Contains(t, problem, "ConfigMap fairlead/ingress: ", "ours first")
}
