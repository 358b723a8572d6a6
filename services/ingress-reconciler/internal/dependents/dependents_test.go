package dependents

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/cache"
)

func name(n string) cache.ObjectName { return cache.ObjectName{Namespace: "models", Name: n} }

var (
	public = Object{Kind: Gateway, Name: cache.ObjectName{Namespace: "gateways", Name: "public"}}
	inner  = Object{Kind: Gateway, Name: cache.ObjectName{Namespace: "gateways", Name: "inner"}}
	class  = Object{Kind: IngressClass}
)

func TestUsers(t *testing.T) {
	t.Parallel()
	x := New()
	assert.Empty(t, x.DependentsOf(public))
	x.SetDependencies(name("a"), []Object{public, class})
	x.SetDependencies(name("b"), []Object{public, inner, public})
	assert.ElementsMatch(t, []cache.ObjectName{name("a"), name("b")}, x.DependentsOf(public), "Users returns each service once")
	assert.Equal(t, []cache.ObjectName{name("b")}, x.DependentsOf(inner))
	assert.Equal(t, []cache.ObjectName{name("a")}, x.DependentsOf(class))
	assert.Empty(t, x.DependentsOf(Object{Kind: InferencePool, Name: public.Name}), "an object with the same name and another kind")

	x.SetDependencies(name("b"), []Object{inner})
	assert.Equal(t, []cache.ObjectName{name("a")}, x.DependentsOf(public))
	assert.Equal(t, []cache.ObjectName{name("b")}, x.DependentsOf(inner))

	x.SetDependencies(name("a"), nil)
	x.SetDependencies(name("b"), []Object{})
	x.SetDependencies(name("c"), nil)
	assertEmpty(t, x)
}

// assertEmpty asserts that removed services leave no entries.
func assertEmpty(t *testing.T, x *Index) {
	t.Helper()
	assert.Empty(t, x.services.ListKeys())
	assert.Empty(t, x.services.ListIndexFuncValues(byObject))
}

func TestClear(t *testing.T) {
	t.Parallel()
	x := New()
	x.SetDependencies(name("a"), []Object{public, class})
	x.Clear()
	assertEmpty(t, x)
}

func TestTheCallersListIsItsOwn(t *testing.T) {
	t.Parallel()
	x := New()
	list := []Object{public}
	x.SetDependencies(name("a"), list)
	list[0] = inner
	x.SetDependencies(name("a"), []Object{inner})
	assert.Empty(t, x.DependentsOf(public))
	assert.Equal(t, []cache.ObjectName{name("a")}, x.DependentsOf(inner))
}

func TestAddedObjects(t *testing.T) {
	t.Parallel()
	x := New()
	assert.True(t, x.SetDependencies(name("a"), []Object{public, class}))
	assert.False(t, x.SetDependencies(name("a"), []Object{class, public}), "in another order")
	assert.True(t, x.SetDependencies(name("a"), []Object{class, inner}))
	assert.False(t, x.SetDependencies(name("a"), []Object{inner}), "fewer objects")
	assert.False(t, x.SetDependencies(name("a"), nil))
	assert.True(t, x.SetDependencies(name("a"), []Object{inner}), "the service was removed")
}

func TestItMayBeAskedAtAnyTime(t *testing.T) {
	t.Parallel()
	x := New()
	var all sync.WaitGroup
	for _, n := range []string{"a", "b", "c"} {
		all.Go(func() {
			for range 200 {
				x.SetDependencies(name(n), []Object{public})
				x.DependentsOf(public)
				x.SetDependencies(name(n), []Object{inner})
			}
		})
	}
	all.Wait()
	assert.Len(t, x.DependentsOf(inner), 3)
	assert.Empty(t, x.DependentsOf(public))
}
