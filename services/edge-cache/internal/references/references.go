// Package references finds the Secrets and ConfigMaps that other objects name: the controller sees only these.
//
// Input: encoded Ingresses, Services, ConfigMaps and custom resources. Output: the objects that they name, and the references that are not
// followed.
package references

import (
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/allowlist"
)

// Target is an object that the controller sees only while another object names it.
type Target struct {
	Kind allowlist.Filter // Secrets or ConfigMaps; Nodes are wanted by the pool
	Key  string
}

// Problem is a reason for which a reference is not followed.
type Problem string

const (
	// OtherNamespace means that the target is in another namespace: whoever may write an object may not therefore read the Secrets there.
	OtherNamespace Problem = "other_namespace"
	// TooMany means that the object names more than maxReferences.
	TooMany Problem = "too_many"
	// NotCached means that the namespace is not among those of the cache.
	NotCached Problem = "namespace_not_cached"
	// Missing means that the target does not exist.
	Missing Problem = "missing"
	// Unreadable means that the API server did not give the target to the cache.
	Unreadable Problem = "unreadable"
)

// AllProblems returns all problems.
func AllProblems() []Problem {
	return []Problem{OtherNamespace, TooMany, NotCached, Missing, Unreadable}
}

// Reference is a field of an object that names another one.
type Reference struct {
	Resource string // of the object; a flag for what the administrator names
	Object   string
	Field    string
	Target   Target
	Problem  Problem // OtherNamespace, TooMany, or empty
	// Guessed references are fields of custom resources whose names say that they name a Secret. Their values can be secrets themselves.
	Guessed bool
}

// Index has the Secrets, and the ConfigMaps for TLS, that other objects name: Ingresses of a class, Services, ConfigMaps of the
// controller's own namespace, and custom resources. References to other namespaces are not followed, except those of the administrator.
type Index struct {
	params Params

	mu         sync.Mutex
	byReferrer map[referrer][]Reference
	count      map[Target]int // of references without a problem
}

// referrer is an object that names others.
type referrer struct{ resource, key string }

// Params are the arguments of New.
type Params struct {
	Class        string // of Ingresses, and of custom resources that have one
	SecretFields allowlist.SecretFields
	Namespace    string   // of the controller: its ConfigMaps are the administrator's
	Secrets      []string // that are always wanted
	Log          *zap.Logger
}

// New returns the references of the administrator.
func New(p Params) *Index {
	r := &Index{params: p, byReferrer: map[referrer][]Reference{}, count: map[Target]int{}}
	always := make([]Reference, 0, len(p.Secrets))
	for _, key := range p.Secrets {
		always = append(always, Reference{Resource: "--secrets", Object: key, Target: Target{Kind: allowlist.Secrets, Key: key}})
	}
	r.replaceReferences(referrer{resource: "--secrets"}, always, func(Target) {})
	return r
}

// IsWanted reports whether an object is named.
func (r *Index) IsWanted(t Target) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[t] > 0
}

// WantedTargets returns all wanted objects.
func (r *Index) WantedTargets() []Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.count))
}

// FindUnfollowed returns the references that do not lead to an object, with their problems. problem is asked for those that could be
// followed.
func (r *Index) FindUnfollowed(problem func(Target) Problem) []Reference {
	r.mu.Lock()
	defer r.mu.Unlock()
	var unfollowed []Reference
	for _, references := range r.byReferrer {
		for _, reference := range references {
			if r.count[reference.Target] > 0 {
				reference.Problem = problem(reference.Target)
			}
			if reference.Problem != "" {
				unfollowed = append(unfollowed, reference)
			}
		}
	}
	return unfollowed
}

// UpdateObjects applies changes of objects of a resource, and returns the targets that are now wanted or no longer wanted.
func (r *Index) UpdateObjects(resource allowlist.Resource, objects map[string][]byte) (changed []Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := map[Target]bool{}
	note := func(t Target) {
		if _, known := before[t]; !known {
			before[t] = r.count[t] > 0
		}
	}
	for key, object := range objects {
		r.replaceReferences(referrer{resource.Path(), key}, r.readReferences(resource, key, object), note)
	}
	for t, was := range before {
		if was != (r.count[t] > 0) {
			changed = append(changed, t)
		}
	}
	return changed
}

// replaceReferences replaces the references of an object. note is called before the count of a target changes. The caller has the lock.
func (r *Index) replaceReferences(f referrer, references []Reference, note func(Target)) {
	for _, reference := range r.byReferrer[f] {
		if reference.Problem != "" {
			continue
		}
		note(reference.Target)
		if r.count[reference.Target]--; r.count[reference.Target] == 0 {
			delete(r.count, reference.Target)
		}
	}
	delete(r.byReferrer, f)
	if len(references) > 0 {
		r.byReferrer[f] = references
	}
	for _, reference := range references {
		if reference.Problem == "" {
			note(reference.Target)
			r.count[reference.Target]++
		}
	}
}

// readReferences returns what an object names, nothing if it is gone or malformed.
func (r *Index) readReferences(resource allowlist.Resource, key string, object []byte) []Reference {
	if object == nil {
		return nil
	}
	n := collector{params: r.params, resource: resource.Path()}
	if err := n.readObject(resource, object); err != nil {
		r.params.Log.Warn("Ignored the references of a malformed object",
			zap.String("resource", resource.Path()), zap.String("object", key), zap.Error(err))
		return nil
	}
	return n.references
}
