package configmap

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
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var name = cache.ObjectName{Namespace: "fairlead", Name: "ingress"}

// rig is a Store that runs, and what it reports.
type rig struct {
	*Store[string]

	client *fake.Clientset
	logs   *zapobserver.ObservedLogs

	mu       sync.Mutex
	events   []string
	problems []string // that the observer got
	changes  int
}

// start runs a Store beside a ConfigMap with this text, if it is not nil, and waits until the Store has synced.
func start(t *testing.T, text *string) *rig {
	t.Helper()
	core, logs := zapobserver.New(zapcore.DebugLevel)
	r := &rig{client: fake.NewClientset(), logs: logs}
	r.Store = NewStore(Params[string]{Log: zap.New(core), Client: r.client, Name: name, Key: "config", Decode: upper, Recorder: r, Observer: r})
	if text != nil {
		r.write(t, map[string]string{"config": *text})
	}
	r.OnChange(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changes++
	})
	assert.False(t, r.HasSynced(), "before Run")
	assert.Equal(t, []string{"ConfigMap fairlead/ingress"}, r.Unsynced())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	r.eventually(t, r.HasSynced)
	assert.Empty(t, r.Unsynced())
	r.eventually(t, func() bool { // the fake drops what happens before the watch
		for _, a := range r.client.Actions() {
			if a.Matches("watch", "configmaps") {
				return true
			}
		}
		return false
	})
	return r
}

// Event implements recorder.
func (r *rig) Event(about *corev1.ObjectReference, kind, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, strings.Join([]string{about.Kind, about.Namespace + "/" + about.Name, string(about.UID), kind, reason, message}, " "))
}

// Configured implements observer.
func (r *rig) Configured(name, problem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, name+": "+problem)
}

// reports returns and clears what was reported.
func (r *rig) reports() (events, problems []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, problems = r.events, r.problems
	r.events, r.problems = nil, nil
	return events, problems
}

func (r *rig) changed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

func (r *rig) write(t *testing.T, data map[string]string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: "uid"}, Data: data}
	client := r.client.CoreV1().ConfigMaps(name.Namespace)
	_, err := client.Update(t.Context(), cm, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(t.Context(), cm, metav1.CreateOptions{})
	}
	require.NoError(t, err)
}

// edit writes a ConfigMap and waits until the Store reports a change.
func (r *rig) edit(t *testing.T, data map[string]string) {
	t.Helper()
	before := r.changed()
	r.write(t, data)
	r.eventually(t, func() bool { return r.changed() > before })
}

func (r *rig) eventually(t *testing.T, happens func() bool) {
	t.Helper()
	require.Eventually(t, happens, kubetest.Patience, time.Millisecond)
}

func TestStoreReportsEachTextOnce(t *testing.T) {
	t.Parallel()
	first := "a"
	r := start(t, &first)
	assertCurrent(t, r.LastGood, "A", true, "")
	events, problems := r.reports()
	assert.Equal(t, []string{"ConfigMap fairlead/ingress uid Normal ConfigurationLoaded the configuration is in force"}, events)
	assert.Equal(t, []string{"fairlead/ingress: "}, problems)

	r.write(t, map[string]string{"config": "a", "other": "key"}) // no change
	r.edit(t, map[string]string{"config": "bad"})
	assertCurrent(t, r.LastGood, "A", true, "ConfigMap fairlead/ingress: line 1: bad; line 2: worse")
	r.write(t, map[string]string{"config": "bad", "other": "key"}) // no change
	events, problems = r.reports()
	assert.Equal(t, []string{"ConfigMap fairlead/ingress uid Warning InvalidConfiguration ConfigMap fairlead/ingress: line 1: bad; line 2: worse; the last valid configuration stays in force"}, events)
	assert.Equal(t, []string{"fairlead/ingress: ConfigMap fairlead/ingress: line 1: bad; line 2: worse"}, problems)

	r.edit(t, map[string]string{"other": "key"})
	assertCurrent(t, r.LastGood, "A", true, `ConfigMap fairlead/ingress: key "config" is missing`)
	r.edit(t, map[string]string{"config": "odd"})
	assertCurrent(t, r.LastGood, "ODD", true, "")
	events, _ = r.reports()
	assert.Equal(t, []string{
		`ConfigMap fairlead/ingress uid Warning InvalidConfiguration ConfigMap fairlead/ingress: key "config" is missing; the last valid configuration stays in force`,
		"ConfigMap fairlead/ingress uid Normal ConfigurationLoaded the configuration is in force",
	}, events)
	assert.Equal(t, 4, r.changed())
	assert.Equal(t, 2, r.logs.FilterMessage("Refused configuration").FilterField(zap.Bool("lastValidInForce", true)).Len())
	assert.Equal(t, 2, r.logs.FilterMessage("Loaded configuration").Len())
}

func TestStoreOfDeletedConfigMap(t *testing.T) {
	t.Parallel()
	first := "a"
	r := start(t, &first)
	require.NoError(t, r.client.CoreV1().ConfigMaps(name.Namespace).Delete(t.Context(), name.Name, metav1.DeleteOptions{}))
	r.eventually(t, func() bool { return r.changed() == 2 })
	assertCurrent(t, r.LastGood, "A", true, "ConfigMap fairlead/ingress was deleted")
	events, problems := r.reports()
	assert.Len(t, events, 1, "there is nothing left to be about")
	assert.Equal(t, []string{"fairlead/ingress: ", "fairlead/ingress: ConfigMap fairlead/ingress was deleted"}, problems)
	assert.Equal(t, 1, r.logs.FilterMessage("ConfigMap was deleted").Len())
	r.edit(t, map[string]string{"config": "a"})
	assertCurrent(t, r.LastGood, "A", true, "")
}

func TestStoreOfMissingConfigMap(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	assertCurrent(t, r.LastGood, "", false, "")
	r.edit(t, map[string]string{"config": "bad"})
	assertCurrent(t, r.LastGood, "", false, "ConfigMap fairlead/ingress: line 1: bad; line 2: worse")
	events, _ := r.reports()
	assert.Equal(t, []string{"ConfigMap fairlead/ingress uid Warning InvalidConfiguration ConfigMap fairlead/ingress: line 1: bad; line 2: worse; no configuration is in force"}, events)
	r.edit(t, map[string]string{"config": "a"})
	assertCurrent(t, r.LastGood, "A", true, "")
}

func TestStoreAsksForOneConfigMap(t *testing.T) {
	t.Parallel()
	first := "a"
	r := start(t, &first)
	for _, action := range r.client.Actions() {
		if list, ok := action.(clienttesting.ListAction); ok {
			assert.Equal(t, "fairlead", list.GetNamespace())
			assert.Equal(t, "metadata.name=ingress", list.GetListRestrictions().Fields.String())
		}
	}
}

func TestStoreWithoutAName(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	s := NewStore(Params[string]{Log: zap.NewNop(), Client: client, Key: "config", Decode: upper})
	assert.True(t, s.HasSynced())
	assert.Empty(t, s.Unsynced())
	s.Run(t.Context()) // ends
	assertCurrent(t, s.LastGood, "", false, "")
	assert.Empty(t, client.Actions(), "no ConfigMap is read")
}
