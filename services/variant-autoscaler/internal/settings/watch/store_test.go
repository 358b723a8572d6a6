package watch

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

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	long, short, third = "workload-variant-autoscaler-variantautoscaling-config", "variantautoscaling-config", "wva-variantautoscaling-config"
	costs              = "accelerator-unit-costs"
	classes            = "service-classes-config"
	toZero             = "model-scale-to-zero-config"
)

func interval(d string) map[string]string { return map[string]string{"GLOBAL_OPT_INTERVAL": d} }

// rig is a Store that runs, and what it reports.
type rig struct {
	*Store

	client *fake.Clientset
	logs   *zapobserver.ObservedLogs

	mu       sync.Mutex
	events   []string
	problems []string
	changes  []string
	loaded   []bool // whether the limiter was on
}

// start runs a Store beside ConfigMaps with these names and data, and waits until it has synced.
func start(t *testing.T, present map[string]map[string]string, change ...func(p *Params)) *rig {
	t.Helper()
	core, logs := zapobserver.New(zapcore.DebugLevel)
	r := &rig{client: fake.NewClientset(), logs: logs}
	p := Params{Options: settings.Options{Namespace: "system"}, Log: zap.New(core), Client: r.client, Event: r.Event, Configured: r.Configured}
	for _, f := range change {
		f(&p)
	}
	r.Store = NewStore(p)
	for name, data := range present {
		r.write(t, name, data)
	}
	r.OnChange(func(kind settings.Kind, name string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changes = append(r.changes, string(kind)+" "+name)
	})
	r.OnLoad(func(s *settings.Settings) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.loaded = append(r.loaded, s.Limiter())
	})
	assert.False(t, r.HasSynced(), "before Run")
	assert.Equal(t, []string{"ConfigMaps of system"}, r.Unsynced())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	r.eventually(t, r.HasSynced)
	assert.Empty(t, r.Unsynced())
	r.eventually(t, func() bool { // the fake drops what happens before the watches
		watches := 0
		for _, a := range r.client.Actions() {
			if a.Matches("watch", "configmaps") {
				watches++
			}
		}
		return watches == 1
	})
	assert.Empty(t, r.changes, "what is there at the start is no change")
	return r
}

// Event implements recorder.
func (r *rig) Event(about *corev1.ObjectReference, kind, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, strings.Join([]string{about.Namespace + "/" + about.Name, string(about.UID), kind, reason, message}, " "))
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

// awaitChanges waits for changes, and clears them.
func (r *rig) awaitChanges(t *testing.T, want ...string) {
	t.Helper()
	r.eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.changes) >= len(want)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Equal(t, want, r.changes)
	r.changes = nil
}

// object has another annotation each time.
func object(name string, data map[string]string) *corev1.ConfigMap {
	now := map[string]string{"written": time.Now().String()}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name, UID: "uid", Annotations: now}, Data: data}
}

func (r *rig) write(t *testing.T, name string, data map[string]string) {
	t.Helper()
	r.writeObject(t, object(name, data))
}

func (r *rig) writeObject(t *testing.T, cm *corev1.ConfigMap) {
	t.Helper()
	client := r.client.CoreV1().ConfigMaps(cm.Namespace)
	_, err := client.Update(t.Context(), cm, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(t.Context(), cm, metav1.CreateOptions{})
	}
	require.NoError(t, err)
}

func (r *rig) remove(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, r.client.CoreV1().ConfigMaps("system").Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func (r *rig) eventually(t *testing.T, happens func() bool) {
	t.Helper()
	require.Eventually(t, happens, kubetest.Patience, time.Millisecond)
}

// TestSettingsThatComeIntoForce: what is there at the start is loaded, too.
func TestSettingsThatComeIntoForce(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]map[string]string{"wva-saturation-scaling-config": {"default": "enableLimiter: true"}})
	r.mu.Lock()
	assert.Equal(t, []bool{true}, r.loaded)
	r.mu.Unlock()
	r.write(t, "wva-saturation-scaling-config", map[string]string{"default": "enableLimiter: false"})
	r.awaitChanges(t, "saturation wva-saturation-scaling-config")
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Equal(t, []bool{true, false}, r.loaded)
}

func TestOnlyDataCounts(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]map[string]string{long: interval("30s"), toZero: {}})
	assert.Equal(t, 30*time.Second, r.Settings().Interval())
	events, problems := r.reports()
	assert.ElementsMatch(t, []string{
		"system/" + long + " uid Normal ConfigurationLoaded the configuration is in force",
		"system/" + toZero + " uid Normal ConfigurationLoaded the configuration is in force",
	}, events)
	assert.ElementsMatch(t, []string{
		"system/" + long + ": ", "system/" + toZero + ": ", "system/wva-saturation-scaling-config: ", "system/variant-autoscaler-limits: ",
		"system/" + costs + ": ", "system/" + classes + ": ",
	}, problems)
	missing := map[string]any{}
	for _, entry := range r.logs.FilterMessage("No ConfigMap of a kind is in force").All() {
		missing[entry.ContextMap()["configMap"].(string)+" "+entry.Level.String()] = entry.ContextMap()["consequence"]
	}
	assert.Equal(t, map[string]any{
		"system/" + classes + " warn":               "models have no targets, and are scaled for a stable load",
		"system/" + costs + " warn":                 "replicas cost what their variants say, or all the same",
		"system/wva-saturation-scaling-config info": "defaults are in force", "system/variant-autoscaler-limits info": "no limit is in force",
	}, missing)

	r.write(t, long, interval("30s")) // metadata only
	r.write(t, "other", interval("20s"))
	r.remove(t, "other")
	r.write(t, long, interval("40s"))
	r.awaitChanges(t, "optimization "+long)
	assert.Equal(t, 40*time.Second, r.Settings().Interval())
	cm := object(long, interval("40s"))
	cm.BinaryData = map[string][]byte{"file": {0xff}}
	r.writeObject(t, cm)
	r.awaitChanges(t, "optimization "+long)
	events, _ = r.reports()
	assert.Equal(t, []string{
		"system/" + long + " uid Normal ConfigurationLoaded the configuration is in force",
		"system/" + long + ` uid Warning InvalidConfiguration key "file": ignored: 1 keys have binary data; save the files as UTF-8`,
	}, events)

	r.write(t, toZero, map[string]string{"__defaults__": "enableScaleToZero: true"})
	r.awaitChanges(t, "scale-to-zero "+toZero)
	before := r.Settings()
	r.remove(t, toZero)
	r.awaitChanges(t, "scale-to-zero "+toZero)
	enabled, _ := r.Settings().ScaleToZero("a", "m")
	assert.False(t, enabled)
	enabled, _ = before.ScaleToZero("a", "m")
	assert.True(t, enabled, "a pass keeps the settings that it began with")
	r.write(t, toZero, nil)
	r.awaitChanges(t, "scale-to-zero "+toZero)
}

func TestNamesOfTheOptimizationConfig(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]map[string]string{short: interval("20s"), third: interval("15s")})
	assert.Equal(t, 20*time.Second, r.Settings().Interval())
	assert.Equal(t, short, r.Settings().ConfigMap(settings.Optimization))
	assert.Equal(t, 1, r.logs.FilterMessage("Loaded configuration").FilterField(zap.String("configMap", "system/"+short)).Len())

	r.write(t, long, interval("30s")) // the long name wins
	r.awaitChanges(t, "optimization "+long)
	assert.Equal(t, 30*time.Second, r.Settings().Interval())
	r.write(t, short, interval("50s")) // not in force
	r.eventually(t, func() bool {      // each name has a watch of its own
		r.Store.mu.Lock()
		defer r.Store.mu.Unlock()
		return r.found[short].Data["GLOBAL_OPT_INTERVAL"] == "50s"
	})
	r.remove(t, long)
	r.awaitChanges(t, "optimization "+long)
	assert.Equal(t, 50*time.Second, r.Settings().Interval())

	r.write(t, long, interval("50s")) // the same data under another name is no change
	r.eventually(t, func() bool { return r.Settings().ConfigMap(settings.Optimization) == long })
	r.remove(t, short)
	r.write(t, long, interval("60s"))
	r.awaitChanges(t, "optimization "+long)
	assert.Equal(t, 3, r.logs.FilterMessage("Another ConfigMap of the same kind is in force").Len())
	assert.Zero(t, r.logs.FilterMessage("ConfigMap was deleted, or is not in force any more").Len())
}

func TestAFlagNamesTheConfigMap(t *testing.T) {
	t.Parallel()
	mine := map[settings.Kind]string{settings.Optimization: "mine", settings.Accelerators: "prices"}
	r := start(t, map[string]map[string]string{"mine": interval("20s"), long: interval("30s")}, func(p *Params) { p.Names = mine })
	assert.Equal(t, 20*time.Second, r.Settings().Interval())
	assert.Empty(t, r.Settings().ConfigMap(settings.Accelerators))
	r.write(t, long, interval("40s"))
	r.write(t, "mine", interval("50s"))
	r.awaitChanges(t, "optimization mine")
	assert.Equal(t, 50*time.Second, r.Settings().Interval())
}

func TestAUsualConfigMapIsDeleted(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]map[string]string{costs: {"A100": `{"cost":"40"}`}, classes: {}})
	r.reports()
	r.remove(t, costs)
	r.awaitChanges(t, "accelerators "+costs)
	_, known := r.Settings().Prices()["A100"]
	assert.False(t, known, "the last prices do not stay")
	events, problems := r.reports()
	assert.Empty(t, events, "there is no object left that they could be about")
	assert.Equal(t, []string{"system/" + costs + ": ConfigMap system/" + costs + " is not in force any more"}, problems)
	deleted := r.logs.FilterMessage("ConfigMap was deleted, or is not in force any more").All()
	require.Len(t, deleted, 1)
	assert.Equal(t, "replicas cost what their variants say, or all the same", deleted[0].ContextMap()["consequence"])

	r.write(t, costs, map[string]string{"A100": `{"cost":"50"}`})
	r.awaitChanges(t, "accelerators "+costs)
}

func TestWarningsAreReportedOnce(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]map[string]string{long: {"GLOBAL_OPT_INTERVAL": "5s", "PROMETHEUS_BASE_URL": "https://a", "extra": "x"}})
	events, problems := r.reports()
	const interval = `key "GLOBAL_OPT_INTERVAL": "5s" is too short, 10s is in force: set a duration from 10s to 10m, for example 60s`
	assert.Equal(t, []string{
		"system/" + long + " uid Warning UnknownConfiguration ignored extra: unknown key: use one of GLOBAL_OPT_INTERVAL, WVA_SCALE_TO_ZERO, PROMETHEUS_BASE_URL, PROMETHEUS_TLS_INSECURE_SKIP_VERIFY, PROMETHEUS_CA_CERT_PATH, PROMETHEUS_CLIENT_CERT_PATH, PROMETHEUS_CLIENT...",
		"system/" + long + " uid Warning InvalidConfiguration " + interval,
	}, events)
	assert.Contains(t, problems, "system/"+long+": ConfigMap system/"+long+": "+interval)
	r.write(t, long, map[string]string{"GLOBAL_OPT_INTERVAL": "5s", "PROMETHEUS_BASE_URL": "https://a", "extra": "x"}) // no change
	r.write(t, long, map[string]string{"PROMETHEUS_BASE_URL": "https://b"})
	r.awaitChanges(t, "optimization "+long)
	events, problems = r.reports()
	require.Len(t, events, 1)
	assert.Contains(t, events[0], `uid Warning ImmutableConfigChangeRejected key "PROMETHEUS_BASE_URL": ignored a change`)
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0], "ignored a change")
	assert.Equal(t, "https://a", r.Settings().Prometheus().BaseURL)
	assert.Equal(t, 3, r.logs.FilterMessage("Refused part of the configuration").Len())

	r.write(t, long, map[string]string{"PROMETHEUS_BASE_URL": "https://a"})
	r.awaitChanges(t, "optimization "+long)
	events, problems = r.reports()
	assert.Equal(t, []string{"system/" + long + " uid Normal ConfigurationLoaded the configuration is in force"}, events)
	assert.Equal(t, []string{"system/" + long + ": "}, problems)
}

// TestEnvironmentAndConfigMap: the chart sets the address in the environment, and a ConfigMap of another release has other keys. Only what
// changes after the start is refused.
func TestEnvironmentAndConfigMap(t *testing.T) {
	t.Parallel()
	environment := func(p *Params) {
		p.Environment = func(name string) string { return map[string]string{"PROMETHEUS_BASE_URL": "https://a"}[name] }
	}
	r := start(t, map[string]map[string]string{long: {"PROMETHEUS_BASE_URL": "https://a", "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY": "true"}}, environment)
	events, _ := r.reports()
	assert.Equal(t, []string{"system/" + long + " uid Normal ConfigurationLoaded the configuration is in force"}, events)
	assert.Equal(t, settings.Prometheus{BaseURL: "https://a", InsecureSkipVerify: true}, r.Settings().Prometheus())

	r = start(t, nil, environment)
	r.reports()
	r.write(t, long, map[string]string{"PROMETHEUS_TLS_INSECURE_SKIP_VERIFY": "true"})
	r.awaitChanges(t, "optimization "+long)
	events, _ = r.reports()
	require.Len(t, events, 1)
	assert.Contains(t, events[0], `ImmutableConfigChangeRejected key "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY"`)
	assert.False(t, r.Settings().Prometheus().InsecureSkipVerify)
}

// TestTheStoreReadsOneNamespace: it keeps the data of ConfigMaps that can be in force only.
func TestTheStoreReadsOneNamespace(t *testing.T) {
	t.Parallel()
	r := start(t, map[string]map[string]string{"kube-root-ca.crt": {"ca.crt": "..."}, classes: {"a": "data: []"}})
	for _, action := range r.client.Actions() {
		assert.Equal(t, "system", action.GetNamespace())
	}
	kept := map[string]int{}
	for _, obj := range r.informer.GetStore().List() {
		kept[obj.(*corev1.ConfigMap).Name] = len(obj.(*corev1.ConfigMap).Data)
	}
	assert.Equal(t, map[string]int{"kube-root-ca.crt": 0, classes: 1}, kept)
}

const (
	premium = "name: Premium\npriority: 1\ndata: [{model: default/default, slo-tpot: 24, slo-ttft: 500}]"
	usual   = "name: Default\ndata: [{model: default/default, slo-tpot: 100, slo-ttft: 2000}]"
)

// TestNamesOfReleases: the chart of the workload-variant-autoscaler calls its ConfigMaps by its release.
func TestNamesOfReleases(t *testing.T) {
	t.Parallel()
	const released, other = "wva-" + classes, "other-" + classes
	r := start(t, map[string]map[string]string{released: {"premium.yaml": premium}, "wva-" + costs: {"A100": `{"cost":"40"}`}})
	class, problem := r.Settings().Class("a", "m", "")
	require.Nil(t, problem)
	assert.Equal(t, "Premium", class.Name)
	assert.NotEmpty(t, r.Settings().Prices())
	r.reports()

	r.write(t, other, map[string]string{"default.yaml": usual}) // nobody knows which one counts
	r.awaitChanges(t, "classes "+other)
	_, problem = r.Settings().Class("a", "m", "")
	require.NotNil(t, problem)
	assert.Equal(t, settings.ReasonNoClass, problem.Reason)
	events, problems := r.reports()
	const why = "ignored, as several ConfigMaps of this kind exist: " + other + ", " + released + "; name one by --config-map=classes=NAME, or delete the others"
	assert.Equal(t, []string{"system/" + other + " uid Warning UnknownConfiguration " + why, "system/" + released + " uid Warning UnknownConfiguration " + why}, events)
	assert.Contains(t, problems, "system/"+other+": ConfigMap system/"+other+": "+why)

	r.write(t, "wva-queueing-model-config", nil)
	r.write(t, "wva-"+costs, map[string]string{"A100": `{"cost":"41"}`})
	r.awaitChanges(t, "accelerators wva-"+costs)
	events, _ = r.reports()
	assert.Equal(t, []string{
		"system/wva-queueing-model-config uid Warning UnknownConfiguration ignored: give models their targets as slo-ttft and slo-tpot in a ConfigMap service-classes-config",
		"system/wva-" + costs + " uid Normal ConfigurationLoaded the configuration is in force",
	}, events, "what was reported is not reported again")

	r.remove(t, other)
	r.awaitChanges(t, "classes "+other)
	_, problem = r.Settings().Class("a", "m", "")
	assert.Nil(t, problem)
	_, problems = r.reports()
	assert.ElementsMatch(t, []string{"system/" + released + ": ", "system/" + other + ": "}, problems)

	r.write(t, classes, map[string]string{"default.yaml": usual}) // both are in force, and disagree
	r.awaitChanges(t, "classes "+classes)
	class, problem = r.Settings().Class("a", "m", "")
	require.Nil(t, problem)
	assert.Contains(t, class.Note, `service classes "service-classes-config/default.yaml" and "wva-service-classes-config/premium.yaml" disagree about model "default/default"`)
	events, _ = r.reports()
	assert.Len(t, events, 2, "on both of them")
}

func TestDefaultNamespace(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "workload-variant-autoscaler-system", settings.DefaultNamespace(func(string) string { return "" }))
	assert.Equal(t, "mine", settings.DefaultNamespace(func(name string) string { return map[string]string{"POD_NAMESPACE": "mine"}[name] }))
}
