// Package kubetest helps to test controllers with fake clientsets and real informers, and compares their writes.
//
// A test loads objects with LoadObjects or from Go literals into a generated fake clientset, starts the informers with
// StartInformers, runs the code under test and calls AssertWrites, or WaitForWrites if the code runs in goroutines. FailNext
// and FailAlways make API calls fail. Get, list and watch calls are not compared. To test behavior that fakes do not have,
// such as admission, apply conflicts or real watches, use package cluster, which starts an API server.
package kubetest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

const writesInterval = 10 * time.Millisecond

var readVerbs = []string{"get", "list", "watch"}

// Fake is implemented by every generated fake clientset and by the fake dynamic client.
type Fake interface {
	sync.Locker
	Actions() []clienttesting.Action
	PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
}

// Action identifies an API call. Name is empty for collections.
type Action struct {
	Verb, Resource, Subresource, Namespace, Name string
}

// String returns the action in the form "update pods/status default/a".
func (a Action) String() string {
	s := a.Verb + " " + a.Resource
	if a.Subresource != "" {
		s += "/" + a.Subresource
	}
	return s + " " + a.Namespace + "/" + a.Name
}

// Writes returns the calls to f so far, except reads, in order.
func Writes(f Fake) []Action {
	var writes []Action
	for _, action := range f.Actions() {
		if !slices.Contains(readVerbs, action.GetVerb()) {
			writes = append(writes, identifyAction(action))
		}
	}
	return writes
}

// AssertWrites compares the writes so far with want, in any order, because workers run concurrently. To test the order of
// writes for one object, assert on the resulting object.
func AssertWrites(tb testing.TB, f Fake, want ...Action) {
	tb.Helper()
	if diff := diffWrites(want, Writes(f)); diff != "" {
		tb.Errorf("writes differ (-want +got):\n%s", diff)
	}
}

// WaitForWrites waits until the writes equal want, in any order. After Patience, it fails the test with the difference. It
// does not detect later writes: call AssertWrites after the code under test has ended.
func WaitForWrites(tb testing.TB, f Fake, want ...Action) {
	tb.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(writesInterval) {
		if diffWrites(want, Writes(f)) == "" {
			return
		}
	}
	AssertWrites(tb, f, want...)
}

// FailAlways makes all calls with this verb and resource ("*" matches any) return err.
func FailAlways(f Fake, verb, resource string, err error) {
	prependReaction(f, verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// FailNext makes the next n calls with this verb and resource ("*" matches any) return err.
func FailNext(f Fake, n int, verb, resource string, err error) {
	// n needs no lock: the fake holds its own lock while it calls reactors.
	prependReaction(f, verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		n--
		return n >= 0, nil, err
	})
}

// prependReaction holds the lock of the fake, which PrependReactor does not, because informers may be running.
func prependReaction(f Fake, verb, resource string, reaction clienttesting.ReactionFunc) {
	f.Lock()
	defer f.Unlock()
	f.PrependReactor(verb, resource, reaction)
}

func identifyAction(action clienttesting.Action) Action {
	a := Action{
		Verb:        action.GetVerb(),
		Resource:    action.GetResource().Resource,
		Subresource: action.GetSubresource(),
		Namespace:   action.GetNamespace(),
	}
	// Create and update actions have an object, the others have a name.
	switch action := action.(type) {
	case interface{ GetName() string }:
		a.Name = action.GetName()
	case interface{ GetObject() runtime.Object }:
		if object, err := meta.Accessor(action.GetObject()); err == nil {
			a.Name = cmp.Or(object.GetName(), object.GetGenerateName())
		}
	}
	return a
}

func diffWrites(want, got []Action) string {
	return gocmp.Diff(sortedStrings(want), sortedStrings(got))
}

func sortedStrings[T fmt.Stringer](items []T) []string {
	lines := make([]string, 0, len(items))
	for _, item := range items {
		lines = append(lines, item.String())
	}
	slices.Sort(lines)
	return lines
}
