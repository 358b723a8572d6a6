package discovery

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/endpoint-picker/internal/pool"
)

// failLists makes lists of the objectives of a group fail until the returned function is called.
func (w *rulesWorld) failLists(group string, err error) (allow func(), failed *atomic.Int64) {
	var allowed atomic.Bool
	failed = &atomic.Int64{}
	w.client.Lock()
	defer w.client.Unlock()
	w.client.PrependReactor("list", objectivesResource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		if allowed.Load() || a.GetResource().Group != group {
			return false, nil, nil
		}
		failed.Add(1)
		return true, nil, err
	})
	return func() { allowed.Store(true) }, failed
}

func TestKindThatCannotBeListedDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRulesWorld(t, rulesGroup)
		w.watcher.params.Patience = 5 * time.Second
		w.apply(t, objective(rulesGroup, "gold", int64(1)))
		w.apply(t, rewrite(rulesGroup, "r", "m", map[string]any{"modelRewrite": "m-v2"}))
		allow, _ := w.failLists(rulesGroup, apierrors.NewTimeoutError("later", 0))
		w.run(t)
		time.Sleep(w.watcher.params.Patience + 1)
		require.NoError(t, w.watcher.CheckReady())
		got, _ := w.rules.CurrentSnapshot().PickRewrite("m", 0)
		assert.Equal(t, pool.Rewrite{Object: "r", Target: "m-v2"}, got)
		w.apply(t, at(2, rewrite(rulesGroup, "r", "m", map[string]any{"modelRewrite": "m-v3"})))
		w.target(t, "m", pool.Rewrite{Object: "r", Target: "m-v3"})
		allow()
		w.hasPriority(t, "gold", 1)
		warnings := w.logs.FilterMessage("Could not read all kinds of rules in time, continued without them").All()
		require.Len(t, warnings, 1)
		assert.Equal(t, []any{"inferenceobjectives.llm-d.ai"}, warnings[0].ContextMap()["kinds"])
	})
}

func TestKindThatIsBeingListedKeepsItsRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRulesWorld(t, legacyRulesGroup)
		w.apply(t, objective(legacyRulesGroup, "old", int64(1)))
		w.run(t)
		w.hasPriority(t, "old", 1)
		allow, failed := w.failLists(rulesGroup, apierrors.NewTimeoutError("later", 0))
		w.set(rulesGroup, true)
		time.Sleep(moment)
		require.True(t, w.watcher.objectives.current.Present())
		require.Greater(t, failed.Load(), int64(1))
		_, found := w.rules.CurrentSnapshot().PriorityOf("old")
		assert.True(t, found, "the new group may have it too, nobody knows yet")
		allow()
		w.gone(t, "old")
	})
}

func TestOldGroupIsReadWhileTheNewOneIsForbidden(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newRulesWorld(t, legacyRulesGroup)
		w.apply(t, at(1, objective(legacyRulesGroup, "gold", int64(1))))
		w.run(t)
		w.hasPriority(t, "gold", 1)
		allow, _ := w.failLists(rulesGroup, apierrors.NewForbidden(schema.GroupResource{}, "", nil))
		w.set(rulesGroup, true)
		time.Sleep(moment)
		w.apply(t, at(2, objective(legacyRulesGroup, "gold", int64(2))))
		w.hasPriority(t, "gold", 2)
		w.apply(t, objective(rulesGroup, "gold", int64(3)))
		w.hasPriority(t, "gold", 2)
		allow()
		w.hasPriority(t, "gold", 3)
	})
}

func TestStripRuleKeepsSpecAndIdentity(t *testing.T) {
	t.Parallel()
	object := objective(rulesGroup, "gold", int64(10))
	object.Object["status"] = map[string]any{"conditions": []any{}}
	object.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"})
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
	got, err := stripRule(object)
	require.NoError(t, err)
	assert.Equal(t, objective(rulesGroup, "gold", int64(10)), got)

	tombstone := cache.DeletedFinalStateUnknown{Key: "ns/a"}
	got, err = stripRule(tombstone)
	require.NoError(t, err)
	assert.Equal(t, tombstone, got)
}

func TestStatusOfARuleDoesNotCount(t *testing.T) {
	t.Parallel()
	version := func(resource string, generation int64, uid types.UID) *unstructured.Unstructured {
		o := objective(rulesGroup, "gold", int64(1))
		o.SetResourceVersion(resource)
		o.SetGeneration(generation)
		o.SetUID(uid)
		return o
	}
	assert.True(t, sameRule(version("1", 1, "a"), version("1", 1, "a")), "resync")
	assert.True(t, sameRule(version("1", 1, "a"), version("2", 1, "a")), "status")
	assert.False(t, sameRule(version("1", 1, "a"), version("2", 2, "a")), "spec")
	assert.False(t, sameRule(version("1", 1, "a"), version("2", 1, "b")), "made anew")
	assert.False(t, sameRule(version("1", 0, "a"), version("2", 0, "a")), "nobody counts generations")
}
