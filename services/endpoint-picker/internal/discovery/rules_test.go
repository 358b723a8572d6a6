package discovery

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/pool"
)

// served is a discovery that says which groups have the kinds of rules.
type served struct {
	mu     sync.Mutex
	groups map[string]bool
}

func (s *served) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.groups[groupVersion] {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: objectivesResource}, {Name: rewritesResource}}}, nil
}

func (s *served) set(group string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups[group+"/v1alpha2"] = on
}

// counted is the last figures of each kind.
type counted struct {
	mu      sync.Mutex
	figures map[string][2]int
}

func (c *counted) observe(resource string, read, malformed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.figures[resource] = [2]int{read, malformed}
}

func (c *counted) of(resource string) [2]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.figures[resource]
}

// rulesWorld is a cluster with rules.
type rulesWorld struct {
	*served

	client  *dynamicfake.FakeDynamicClient
	logs    *zaptest.ObservedLogs
	counted counted
	rules   *pool.Rules
	watcher *Rules
}

func newRulesWorld(t *testing.T, groups ...string) *rulesWorld {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{}
	for _, group := range []string{rulesGroup, legacyRulesGroup} {
		kinds[schema.GroupVersionResource{Group: group, Version: rulesVersion, Resource: objectivesResource}] = "InferenceObjectiveList"
		kinds[schema.GroupVersionResource{Group: group, Version: rulesVersion, Resource: rewritesResource}] = "InferenceModelRewriteList"
	}
	core, logs := zaptest.New(zap.InfoLevel)
	w := &rulesWorld{
		served:  &served{groups: map[string]bool{}},
		client:  dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds),
		logs:    logs,
		counted: counted{figures: map[string][2]int{}},
		rules:   pool.NewRules(),
	}
	for _, group := range groups {
		w.set(group, true)
	}
	w.watcher = NewRules(RulesParams{
		Log: zap.New(core), Discovery: w.served, Dynamic: w.client, Namespace: "ns",
		Observe: w.counted.observe, Patience: time.Hour, PollInterval: time.Second,
	})
	w.watcher.AddPool("pool", w.rules, func(...string) {})
	return w
}

func (w *rulesWorld) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.watcher.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// apply creates or replaces an object.
func (w *rulesWorld) apply(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	resource := map[string]string{"InferenceObjective": objectivesResource, "InferenceModelRewrite": rewritesResource}[object.GetKind()]
	gvr := object.GroupVersionKind().GroupVersion().WithResource(resource)
	client := w.client.Resource(gvr).Namespace(object.GetNamespace())
	_, err := client.Create(t.Context(), object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.Update(t.Context(), object, metav1.UpdateOptions{})
	}
	require.NoError(t, err)
}

func (w *rulesWorld) delete(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	gvr := object.GroupVersionKind().GroupVersion().WithResource(objectivesResource)
	require.NoError(t, w.client.Resource(gvr).Namespace(object.GetNamespace()).Delete(t.Context(), object.GetName(), metav1.DeleteOptions{}))
}

// hasPriority waits a moment and compares the priority of an objective.
func (w *rulesWorld) hasPriority(t *testing.T, name string, want int) {
	t.Helper()
	time.Sleep(moment)
	got, found := w.rules.CurrentSnapshot().PriorityOf(name)
	require.True(t, found, name)
	require.Equal(t, want, got, name)
}

func (w *rulesWorld) gone(t *testing.T, name string) {
	t.Helper()
	time.Sleep(moment)
	_, found := w.rules.CurrentSnapshot().PriorityOf(name)
	require.False(t, found, name)
}

func (w *rulesWorld) target(t *testing.T, model string, want pool.Rewrite) {
	t.Helper()
	time.Sleep(moment)
	got, _ := w.rules.CurrentSnapshot().PickRewrite(model, 0)
	require.Equal(t, want, got, model)
}

// ruleObject is an object with this spec, of a new version.
func ruleObject(group, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/" + rulesVersion, "kind": kind,
		"metadata": map[string]any{"namespace": "ns", "name": name, "uid": group + kind + name},
		"spec":     spec,
	}}
}

func at(version int, object *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetResourceVersion(fmt.Sprint(version))
	object.SetGeneration(int64(version))
	return object
}

func objective(group, name string, priority any) *unstructured.Unstructured {
	return ruleObject(group, "InferenceObjective", name, map[string]any{"poolRef": map[string]any{"name": "pool"}, "priority": priority})
}

func rewrite(group, name, model string, targets ...any) *unstructured.Unstructured {
	return ruleObject(group, "InferenceModelRewrite", name, map[string]any{"poolRef": map[string]any{"name": "pool"}, "rules": []any{
		map[string]any{"matches": []any{map[string]any{"model": map[string]any{"value": model}}}, "targets": targets},
	}})
}

func TestRulesFollowTheCluster(t *testing.T) {
	t.Parallel()
	for _, group := range []string{rulesGroup, legacyRulesGroup} {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newRulesWorld(t, group)
				w.apply(t, objective(group, "gold", int64(10)))
				others := objective(group, "others", int64(3))
				others.Object["spec"].(map[string]any)["poolRef"].(map[string]any)["name"] = "other"
				w.apply(t, others)
				elsewhere := objective(group, "elsewhere", int64(4))
				elsewhere.SetNamespace("elsewhere")
				w.apply(t, elsewhere)
				w.apply(t, rewrite(group, "r", "food-review", map[string]any{"modelRewrite": "food-review-v2", "weight": int64(1)}))
				require.ErrorIs(t, w.watcher.CheckReady(), ErrRulesNotRead)
				w.run(t)

				w.hasPriority(t, "gold", 10)
				require.NoError(t, w.watcher.CheckReady())
				w.target(t, "food-review", pool.Rewrite{Object: "r", Target: "food-review-v2"})
				for _, name := range []string{"others", "elsewhere"} {
					_, found := w.rules.CurrentSnapshot().PriorityOf(name)
					assert.False(t, found, name)
				}

				w.apply(t, objective(group, "batch", int64(-1)))
				w.hasPriority(t, "batch", -1)
				w.apply(t, at(2, objective(group, "gold", int64(20))))
				w.hasPriority(t, "gold", 20)
				w.delete(t, objective(group, "gold", nil))
				w.gone(t, "gold")
				assert.Equal(t, [2]int{1, 0}, w.counted.of(objectivesResource))
				assert.Equal(t, [2]int{1, 0}, w.counted.of(rewritesResource))
				kubetest.AssertWrites(t, fakeReads{w.client})
			})
		})
	}
}

// fakeReads leaves out the writes by which a test made its world.
type fakeReads struct{ *dynamicfake.FakeDynamicClient }

func (f fakeReads) Actions() []clienttesting.Action {
	var reads []clienttesting.Action
	for _, a := range f.FakeDynamicClient.Actions() {
		if _, isCreate := a.(clienttesting.CreateAction); !isCreate && a.GetVerb() != "delete" && a.GetVerb() != "update" {
			reads = append(reads, a)
		}
	}
	return reads
}

func TestRules_OfAPoolThatComesLaterApplyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRulesWorld(t, rulesGroup)
		w.apply(t, objective(rulesGroup, "gold", int64(10)))
		others := objective(rulesGroup, "silver", int64(3))
		others.Object["spec"].(map[string]any)["poolRef"].(map[string]any)["name"] = "other"
		w.apply(t, others)
		renamed := rewrite(rulesGroup, "r", "m", map[string]any{"modelRewrite": "m-v2"})
		renamed.Object["spec"].(map[string]any)["poolRef"].(map[string]any)["name"] = "other"
		w.apply(t, renamed)
		w.run(t)
		w.hasPriority(t, "gold", 10)

		other, models := pool.NewRules(), []string{}
		w.watcher.AddPool("other", other, func(names ...string) { models = names })
		w.watcher.Refresh()
		priority, _ := other.CurrentSnapshot().PriorityOf("silver")
		assert.Equal(t, 3, priority)
		_, found := other.CurrentSnapshot().PriorityOf("gold")
		assert.False(t, found, "belongs to the first pool")
		assert.Equal(t, []string{"m", "m-v2"}, models)

		w.watcher.RemovePool("other")
		w.apply(t, at(2, objective(rulesGroup, "gold", int64(20))))
		w.hasPriority(t, "gold", 20)
		assert.Equal(t, [2]int{1, 0}, w.counted.of(objectivesResource))
	})
}

func TestRules_OfAPoolThatComesRightAfterTheFirstReading(t *testing.T) {
	t.Parallel()
	w := newRulesWorld(t)
	w.watcher.readRules()
	read := false
	w.watcher.AddPool("other", pool.NewRules(), func(...string) { read = true })
	w.watcher.Refresh()
	assert.True(t, read)
}

func TestRulesOfKindsThatComeLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRulesWorld(t)
		w.apply(t, objective(legacyRulesGroup, "gold", int64(1)))
		w.run(t)
		time.Sleep(moment)
		require.NoError(t, w.watcher.CheckReady(), "no kinds, no rules, no wait")
		_, found := w.rules.CurrentSnapshot().PriorityOf("gold")
		assert.False(t, found)

		w.set(legacyRulesGroup, true)
		w.hasPriority(t, "gold", 1)
	})
}

func TestOfTwoGroupsTheOldOneIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRulesWorld(t, rulesGroup, legacyRulesGroup)
		w.apply(t, objective(rulesGroup, "gold", int64(10)))
		w.apply(t, objective(legacyRulesGroup, "gold", int64(1)))
		w.apply(t, objective(legacyRulesGroup, "old", int64(1)))
		w.run(t)
		w.hasPriority(t, "gold", 10)
		_, found := w.rules.CurrentSnapshot().PriorityOf("old")
		assert.False(t, found)
		warnings := func() int {
			return w.logs.FilterMessage("Ignored objects of the old group, because the new group serves the kind").Len()
		}
		time.Sleep(moment)
		require.Equal(t, 1, warnings())

		w.set(rulesGroup, false)
		w.hasPriority(t, "gold", 1)
		w.hasPriority(t, "old", 1)

		w.set(rulesGroup, true)
		w.hasPriority(t, "gold", 10)
		w.gone(t, "old")
		assert.Equal(t, 2, warnings(), "once each time")
	})
}

func TestOldGroupIsIgnoredForANewOneWithoutObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRulesWorld(t, legacyRulesGroup)
		w.apply(t, objective(legacyRulesGroup, "old", int64(1)))
		w.run(t)
		w.hasPriority(t, "old", 1)
		w.set(rulesGroup, true)
		w.gone(t, "old")
	})
}

func TestMalformedObjectTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRulesWorld(t, rulesGroup)
		w.apply(t, objective(rulesGroup, "gold", int64(10)))
		w.apply(t, at(1, objective(rulesGroup, "bad", "high")))
		w.apply(t, at(1, rewrite(rulesGroup, "worse", "m")))
		w.apply(t, at(1, rewrite(rulesGroup, "good", "m", map[string]any{"modelRewrite": "x", "weight": int64(1)}, map[string]any{"modelRewrite": "y"})))
		w.run(t)
		w.hasPriority(t, "gold", 10)
		w.target(t, "m", pool.Rewrite{Object: "good", Target: "x"})
		assert.Equal(t, [2]int{1, 1}, w.counted.of(objectivesResource))
		assert.Equal(t, [2]int{1, 1}, w.counted.of(rewritesResource))

		w.apply(t, objective(rulesGroup, "another", int64(1)))
		w.hasPriority(t, "another", 1)
		complaints := func(name string) []string {
			var list []string
			for _, entry := range w.logs.FilterMessage("Could not read object, ignored it").FilterField(zap.String("name", name)).All() {
				list = append(list, fmt.Sprint(entry.ContextMap()["error"]))
			}
			return list
		}
		const wrong = "spec.priority is wrong (string): give a whole number from -2147483648 to 2147483647"
		assert.Equal(t, []string{wrong}, complaints("bad"), "once, however often it is read")
		assert.Equal(t, []string{"spec.rules[0].targets is empty"}, complaints("worse"))
		reservations := w.logs.FilterMessage("Read object with a warning").All()
		require.Len(t, reservations, 1)
		assert.Equal(t, "spec.rules[0].targets: some have no weight, they count as 1", reservations[0].ContextMap()["warning"])

		w.apply(t, at(2, objective(rulesGroup, "bad", "higher")))
		time.Sleep(moment)
		require.Len(t, complaints("bad"), 2, "again for another version")
		w.apply(t, at(3, objective(rulesGroup, "bad", int64(5))))
		w.hasPriority(t, "bad", 5)
		time.Sleep(moment)
		require.Equal(t, [2]int{3, 0}, w.counted.of(objectivesResource))
	})
}

func TestObjectThatIsBeingDeletedHasNoEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRulesWorld(t, rulesGroup)
		going := objective(rulesGroup, "going", int64(1))
		going.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)})
		w.apply(t, going)
		w.apply(t, objective(rulesGroup, "gold", int64(10)))
		w.run(t)
		w.hasPriority(t, "gold", 10)
		_, found := w.rules.CurrentSnapshot().PriorityOf("going")
		assert.False(t, found)
	})
}

func TestRulesThatMayNotBeReadDoNotHoldThePickerUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRulesWorld(t, rulesGroup)
		w.watcher.params.Patience = 5 * time.Second
		kubetest.FailAlways(w.client, "list", objectivesResource, apierrors.NewForbidden(schema.GroupResource{}, "", nil))
		w.run(t)
		time.Sleep(w.watcher.params.Patience - time.Nanosecond)
		require.ErrorIs(t, w.watcher.CheckReady(), ErrRulesNotRead)
		time.Sleep(2 * time.Nanosecond)
		require.NoError(t, w.watcher.CheckReady())
		assert.Equal(t, 1, w.logs.FilterMessage("Could not read all kinds of rules in time, continued without them").Len())
	})
}
