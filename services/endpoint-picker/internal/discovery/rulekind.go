package discovery

import (
	"encoding/json"
	"fmt"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/pool"
)

// ruleKind is one kind of rules, which moved from one group to another, and the last reading of its objects. Only one
// goroutine at a time uses it, except for its informers.
type ruleKind[T any] struct {
	log             *zap.Logger
	resource        string
	current, legacy *kube.OptionalInformer
	convert         func(pool.RuleObject) (converted *T, note string, err error)
	observe         func(resource string, read, malformed int)

	last     map[string][]T       // by pool
	reported map[types.UID]string // versions of objects
	ignored  bool                 // objects of the old group are ignored, and this was logged
}

// newRuleKind adds the informers of a kind: of all objects of the namespace, because only their spec names their pool.
func newRuleKind[T any](r *Rules, resource string, convert func(pool.RuleObject) (*T, string, error)) *ruleKind[T] {
	p := &r.params
	watch := func(group string) *kube.OptionalInformer {
		o := r.informers.Add(informers.Kind{
			Resource:  schema.GroupVersionResource{Group: group, Version: rulesVersion, Resource: resource},
			Namespace: p.Namespace, Transform: stripRule,
		})
		o.AddEventHandler(onChange(func(_, _ *unstructured.Unstructured) { r.dirty.Send() }, sameRule))
		return o
	}
	return &ruleKind[T]{
		log: p.Log.With(zap.String(logging.KeyKind, resource)), resource: resource, convert: convert, observe: p.Observe,
		current: watch(rulesGroup), legacy: watch(legacyRulesGroup),
	}
}

// readObjects reads the objects of the given pools. During the initial list it keeps the last reading, because a partial list has no
// meaning, and returns false.
func (k *ruleKind[T]) readObjects(pools map[string]*poolRules) bool {
	from := k.legacy
	if k.current.Present() {
		from = k.current
	}
	if from.Present() && !from.Listed() {
		return false
	}
	k.reportIgnored(from)
	byPool, read, malformed, reported := map[string][]T{}, 0, 0, map[types.UID]string{}
	for _, object := range informers.CastObjects[*unstructured.Unstructured](from.List()) {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		poolName, converted, note, err := k.convertObject(object, pools)
		switch {
		case err != nil:
			malformed++
		case converted != nil:
			byPool[poolName] = append(byPool[poolName], *converted)
			read++
		}
		if err != nil || note != "" {
			k.reportProblems(object, note, err)
			reported[object.GetUID()] = object.GetResourceVersion()
		}
	}
	k.last, k.reported = byPool, reported
	k.observe(k.resource, read, malformed)
	return true
}

// convertObject converts an object of one of the pools. It returns nil for an object of another pool.
func (k *ruleKind[T]) convertObject(object *unstructured.Unstructured, pools map[string]*poolRules) (poolName string, converted *T,
	note string, err error) {
	o := pool.RuleObject{Name: object.GetName(), Created: object.GetCreationTimestamp().Time}
	if spec := object.Object["spec"]; spec != nil {
		if o.Spec, err = json.Marshal(spec); err != nil {
			return "", nil, "", fmt.Errorf("encode spec: %w", err)
		}
	}
	if poolName, err = pool.ReferencedPool(o); pools[poolName] == nil || err != nil {
		return "", nil, "", err
	}
	converted, note, err = k.convert(o)
	return poolName, converted, note, err
}

// reportProblems logs the problems of an object, once for each of its versions.
func (k *ruleKind[T]) reportProblems(object *unstructured.Unstructured, note string, err error) {
	if k.reported[object.GetUID()] == object.GetResourceVersion() {
		return
	}
	log := k.log.With(zap.String(logging.KeyNamespace, object.GetNamespace()), zap.String(logging.KeyName, object.GetName()))
	if err != nil {
		log.Warn("Could not read object, ignored it", zap.Error(err))
	} else {
		log.Warn("Read object with a warning", zap.String("warning", note))
	}
}

// reportIgnored logs that objects of the old group have no effect.
func (k *ruleKind[T]) reportIgnored(from *kube.OptionalInformer) {
	n := 0
	if from == k.current {
		n = len(k.legacy.List())
	}
	if n > 0 && !k.ignored {
		k.log.Warn("Ignored objects of the old group, because the new group serves the kind",
			zap.String("oldGroup", legacyRulesGroup), zap.String("newGroup", rulesGroup), zap.Int("objects", n))
	}
	k.ignored = n > 0
}

// stripRule keeps the identity and the needed fields of a rule.
func stripRule(item any) (any, error) {
	object, ok := item.(*unstructured.Unstructured)
	if !ok {
		return item, nil
	}
	delete(object.Object, "status")
	object.SetManagedFields(nil)
	object.SetAnnotations(nil)
	return object, nil
}

// sameRule reports whether two states of an object are equal for the picker: it ignores the status.
func sameRule(a, b *unstructured.Unstructured) bool {
	if a.GetResourceVersion() == b.GetResourceVersion() {
		return true
	}
	return a.GetUID() == b.GetUID() && a.GetGeneration() != 0 && a.GetGeneration() == b.GetGeneration() &&
		a.GetDeletionTimestamp().Equal(b.GetDeletionTimestamp())
}
