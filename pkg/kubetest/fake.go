// Package kubetest runs a controller on fake clientsets with real informers and compares the writes it makes.
//
// A test loads the world with LoadObjects or Go literals into a generated fake clientset, starts the informers with
// StartInformers, lets the code under test run and compares with AssertWrites or, where it runs on goroutines,
// WaitForWrites. FailNext and FailAlways make the API refuse. Reads, lists and watches are not compared. Where a fake is
// too simple (admission, apply conflicts, real watches), the test belongs on an API server: package cluster below.
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

const (
	writesTimeout  = 10 * time.Second
	writesInterval = 10 * time.Millisecond
)

var readVerbs = []string{"get", "list", "watch"}

// Fake is the part that every generated fake clientset and the fake dynamic client share.
type Fake interface {
	sync.Locker
	Actions() []clienttesting.Action
	PrependReactor(verb, resource string, reaction clienttesting.ReactionFunc)
}

// Action is what identifies a call. Name is empty for collections.
type Action struct {
	Verb, Resource, Subresource, Namespace, Name string
}

// String returns the action as "update pods/status default/a".
func (a Action) String() string {
	s := a.Verb + " " + a.Resource
	if a.Subresource != "" {
		s += "/" + a.Subresource
	}
	return s + " " + a.Namespace + "/" + a.Name
}

// Writes returns the calls that f has seen so far and that are not reads, in their order.
func Writes(f Fake) []Action {
	var writes []Action
	for _, action := range f.Actions() {
		if !slices.Contains(readVerbs, action.GetVerb()) {
			writes = append(writes, identify(action))
		}
	}
	return writes
}

// AssertWrites compares the writes so far with want, in any order: workers race, and what one key does in turn is better
// asserted on the result.
func AssertWrites(tb testing.TB, f Fake, want ...Action) {
	tb.Helper()
	if diff := diffWrites(want, Writes(f)); diff != "" {
		tb.Errorf("writes differ (-want +got):\n%s", diff)
	}
}

// WaitForWrites waits until the writes are want, in any order, and fails with the difference when they are not in time.
// It does not see writes that come later: assert again after the code under test has ended.
func WaitForWrites(tb testing.TB, f Fake, want ...Action) {
	tb.Helper()
	for deadline := time.Now().Add(writesTimeout); time.Now().Before(deadline); time.Sleep(writesInterval) {
		if diffWrites(want, Writes(f)) == "" {
			return
		}
	}
	AssertWrites(tb, f, want...)
}

// FailAlways makes f answer calls of this verb and resource ("*" for any) with err.
func FailAlways(f Fake, verb, resource string, err error) {
	prepend(f, verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// FailNext makes f answer the next n calls of this verb and resource ("*" for any) with err.
func FailNext(f Fake, n int, verb, resource string, err error) {
	// The fake calls reactors under its lock.
	prepend(f, verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		n--
		return n >= 0, nil, err
	})
}

// prepend takes the lock that PrependReactor leaves out, as informers may be running.
func prepend(f Fake, verb, resource string, reaction clienttesting.ReactionFunc) {
	f.Lock()
	defer f.Unlock()
	f.PrependReactor(verb, resource, reaction)
}

func identify(action clienttesting.Action) Action {
	a := Action{
		Verb:        action.GetVerb(),
		Resource:    action.GetResource().Resource,
		Subresource: action.GetSubresource(),
		Namespace:   action.GetNamespace(),
	}
	// Creates and updates carry an object, the others a name.
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
