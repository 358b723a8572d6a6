// Package apply writes single objects by server-side apply, and only if they differ.
//
// An object belongs to an owner, its controller reference. The wanted object is compared with the object in an informer:
//
//	live object                              action
//	not found                                create; if the name exists, the informer is stale or does not watch the object:
//	                                         get it, and continue below
//	has another controller, or none          return ErrForeign
//	equal                                    none
//	different                                apply with force, with the uid in the informer; if lists still have elements of
//	                                         other clients, replace the lists
//
// A live object is equal if it has every wanted field, if its lists have the wanted elements in the same order, and if its
// annotation HashAnnotation matches. The annotation contains a hash of the wanted object, to detect fields that are no longer
// wanted, and the generation of the object after the apply, to detect changes by other clients inside lists, where additions
// look like defaults of the API server. Fields that other clients add to maps, and additional owners, are kept.
package apply

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"
)

// HashAnnotation records the last apply: a hash of the wanted object, a hash of its specification, and the generation after it.
const HashAnnotation = "fairlead.dev/applied"

// ErrForeign means that an object with the same name has another owner, or none. Apply and Delete do not change it.
var ErrForeign = errors.New("the object has another owner")

// ErrContested means that the API server stores an object differently from what is written. An admission webhook may change it.
var ErrContested = errors.New("the stored object differs from the written one: look for a mutating admission webhook")

// Result is the action that Apply took.
type Result string

// The results.
const (
	Unchanged Result = "unchanged"
	Created   Result = "created"
	Updated   Result = "updated"
)

// Applier writes objects.
type Applier struct {
	client  dynamic.Interface
	manager string
}

// New returns an Applier that writes with the field manager manager.
func New(client dynamic.Interface, manager string) *Applier {
	return &Applier{client: client, manager: manager}
}

// Apply creates or updates an object, and returns the stored object with its status. live is the object in an informer, or nil.
// Apply does not modify its arguments. The wanted object must have a controller reference, no status, and only the fields to
// apply.
func (a *Applier) Apply(
	ctx context.Context, resource schema.GroupVersionResource, wanted, live *unstructured.Unstructured,
) (*unstructured.Unstructured, Result, error) {
	if err := CheckOwner(wanted, live); err != nil {
		return live, Unchanged, describeFailure("apply", wanted, err)
	}
	if !Differs(wanted, live) {
		return live, Unchanged, nil
	}
	client := a.client.Resource(resource).Namespace(wanted.GetNamespace())
	if live != nil {
		return a.updateObject(ctx, client, withRecord(wanted, nextGeneration(wanted, live)), live)
	}
	stored, err := client.Create(ctx, withRecord(wanted, 1), metav1.CreateOptions{FieldManager: a.manager})
	switch {
	case err == nil:
		return stored, Created, nil
	case !apierrors.IsAlreadyExists(err):
		return nil, Unchanged, describeFailure("create", wanted, err)
	}
	if live, err = client.Get(ctx, wanted.GetName(), metav1.GetOptions{}); err != nil {
		return nil, Unchanged, describeFailure("get", wanted, err)
	}
	return a.Apply(ctx, resource, wanted, live)
}

// updateObject applies next, the wanted object with its record, to an existing object with the same owner.
func (a *Applier) updateObject(ctx context.Context, client dynamic.ResourceInterface,
	next, live *unstructured.Unstructured) (*unstructured.Unstructured, Result, error) {
	version, err := a.migrateManagedFields(ctx, client, live)
	if err != nil {
		return live, Unchanged, describeFailure("migrate managed fields of", next, err)
	}
	// The API server first applies to the object in its cache, which may not have the migration yet, and then again to the stored one. By
	// then, the node ports that it has allocated to a Service are taken (k8s.io/apiserver 1.37, GuaranteedUpdate). With a version it
	// notices before it allocates.
	next.SetResourceVersion(version)
	next.SetUID(live.GetUID()) // fails with a conflict if the object was recreated in the meantime
	options := metav1.ApplyOptions{FieldManager: a.manager, Force: true}
	stored, err := client.Apply(ctx, next.GetName(), next, options)
	if apierrors.IsInvalid(err) {
		// Elements of other clients in lists can contradict the wanted ones, such as another port with the same name. An apply after their
		// removal owns all fields.
		if replaced, _, replaceErr := a.replaceLists(ctx, client, next, live); replaceErr == nil {
			next.SetResourceVersion(replaced.GetResourceVersion())
			stored, err = client.Apply(ctx, next.GetName(), next, options)
		}
	}
	if err != nil {
		return live, Unchanged, describeFailure("apply", next, err)
	}
	if coversValue(specOf(stored), specOf(next)) {
		return stored, Updated, nil
	}
	return a.replaceLists(ctx, client, next, stored)
}

// replaceLists removes elements that other clients have added to lists, such as a container of a Deployment: an apply keeps them, so each
// further apply would find a difference. A merge patch replaces lists, and keeps fields that other clients have added to maps. If the
// elements are back at once, an admission webhook adds them, and only an error, with the backoff of its caller, ends the loop.
func (a *Applier) replaceLists(ctx context.Context, client dynamic.ResourceInterface,
	next, stored *unstructured.Unstructured) (*unstructured.Unstructured, Result, error) {
	content := specOf(next)
	content["metadata"] = map[string]any{"uid": stored.GetUID()}
	patch, err := json.Marshal(content)
	if err != nil {
		panic(fmt.Sprintf("unstructured object is not JSON: %v", err)) // unreachable: it consists of JSON values
	}
	replaced, err := client.Patch(ctx, next.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: a.manager})
	switch {
	case err != nil:
		return stored, Updated, describeFailure("replace lists of", next, err)
	case !coversValue(specOf(replaced), specOf(next)):
		return replaced, Updated, describeFailure("apply", next, ErrContested)
	}
	return replaced, Updated, nil
}

// migrateManagedFields marks the fields that this manager set by create as set by apply. Otherwise, an apply would not remove
// those that are no longer wanted. It returns the resource version after the migration, or "" if there was nothing to do.
func (a *Applier) migrateManagedFields(
	ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured,
) (string, error) {
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live.DeepCopy(), sets.New(a.manager), a.manager)
	if err != nil || patch == nil {
		return "", err
	}
	migrated, err := client.Patch(ctx, live.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return "", err
	}
	return migrated.GetResourceVersion(), nil
}

// Annotate sets an annotation, or removes it if the value is empty. It fails with a conflict if live is not the latest version.
// Apply keeps the annotation.
func (a *Applier) Annotate(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured,
	key, value string) error {
	var annotation any
	if value != "" {
		annotation = value
	}
	change := Change{Metadata: map[string]any{"annotations": map[string]any{key: annotation}}}
	return describeFailure("annotate", live, PatchLatest(ctx, a.client.Resource(resource), live, a.manager, change))
}

// Delete deletes an object that owner controls. It returns nil if the object no longer exists, or was recreated.
func (a *Applier) Delete(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured,
	owner types.UID) error {
	if controller := metav1.GetControllerOf(live); controller == nil || controller.UID != owner {
		return describeFailure("delete", live, ErrForeign)
	}
	uid := live.GetUID()
	err := a.client.Resource(resource).Namespace(live.GetNamespace()).Delete(ctx, live.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return describeFailure("delete", live, err)
}

// describeFailure adds the verb and the object to an error, and returns nil for nil.
func describeFailure(verb string, object *unstructured.Unstructured, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s/%s: %w", verb, object.GetKind(), object.GetNamespace(), object.GetName(), err)
}

// CheckOwner returns ErrForeign if the live object does not have the controller of the wanted one.
func CheckOwner(wanted, live *unstructured.Unstructured) error {
	if live == nil {
		return nil
	}
	want, have := metav1.GetControllerOf(wanted), metav1.GetControllerOf(live)
	if want == nil || have == nil || want.UID != have.UID {
		return ErrForeign
	}
	return nil
}

// Differs reports whether an apply would change the live object.
func Differs(wanted, live *unstructured.Unstructured) bool {
	if live == nil || !appliedBefore(wanted, live) || !hasOwners(live, wanted) {
		return true
	}
	rest := wanted.DeepCopy()
	rest.SetOwnerReferences(nil)
	return !coversValue(live.Object, rest.Object) || selectsMore(live, wanted)
}

// selectsMore reports whether the selector of a Service has labels that are not wanted. Unlike a label that others add to an object, it
// takes pods away, and a Service has no generation that would show the change. An apply replaces the selector.
func selectsMore(live, wanted *unstructured.Unstructured) bool {
	if wanted.GetKind() != "Service" {
		return false
	}
	want, found, _ := unstructured.NestedStringMap(wanted.Object, "spec", "selector")
	have, _, _ := unstructured.NestedStringMap(live.Object, "spec", "selector")
	return found && len(have) > len(want)
}

// hasOwners reports whether the live object has the wanted owners.
func hasOwners(live, wanted *unstructured.Unstructured) bool {
	have := live.GetOwnerReferences()
	return !slices.ContainsFunc(wanted.GetOwnerReferences(), func(w metav1.OwnerReference) bool {
		return !slices.ContainsFunc(have, func(h metav1.OwnerReference) bool { return reflect.DeepEqual(h, w) })
	})
}

// withRecord returns the wanted object with the record of its apply.
func withRecord(wanted *unstructured.Unstructured, generation int64) *unstructured.Unstructured {
	next := wanted.DeepCopy()
	annotations := next.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[HashAnnotation] = recordApplied(wanted, generation)
	next.SetAnnotations(annotations)
	return next
}

// appliedBefore reports whether the last apply had the same wanted object, and no client has changed the specification since. Some
// kinds, such as Service, have no generation.
func appliedBefore(wanted, live *unstructured.Unstructured) bool {
	r := live.GetAnnotations()[HashAnnotation]
	if live.GetGeneration() == 0 {
		return strings.HasPrefix(r, objectFingerprint(wanted))
	}
	return r == recordApplied(wanted, live.GetGeneration())
}

// recordApplied returns the value of HashAnnotation.
func recordApplied(wanted *unstructured.Unstructured, generation int64) string {
	return objectFingerprint(wanted) + strconv.FormatInt(generation, 10)
}

// objectFingerprint returns the part of a record that does not depend on the live object.
func objectFingerprint(wanted *unstructured.Unstructured) string {
	return hashJSON(wanted.Object) + "." + specHash(wanted) + "."
}

// nextGeneration predicts the generation of an object after an apply, which increments it if the specification changes. If the
// prediction is wrong, the next Apply corrects the record.
func nextGeneration(wanted, live *unstructured.Unstructured) int64 {
	if wanted.GetKind() == "Deployment" { // changes of annotations, such as the record, increment its generation, too
		return live.GetGeneration() + 1
	}
	parts := strings.Split(live.GetAnnotations()[HashAnnotation], ".")
	if len(parts) == 3 && parts[1] == specHash(wanted) && coversValue(specOf(live), specOf(wanted)) {
		return live.GetGeneration()
	}
	return live.GetGeneration() + 1
}

// specOf returns an object without its metadata and status.
func specOf(u *unstructured.Unstructured) map[string]any {
	spec := maps.Clone(u.Object)
	delete(spec, "metadata")
	delete(spec, "status")
	return spec
}

func specHash(u *unstructured.Unstructured) string { return hashJSON(specOf(u))[:8] }

// hashJSON returns a hash of the JSON encoding, which sorts keys.
func hashJSON(value map[string]any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("unstructured object is not JSON: %v", err)) // unreachable: it consists of JSON values
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// coversValue reports whether a live value contains the wanted value.
func coversValue(live, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return len(wanted) == 0 && live == nil
		}
		for key, value := range wanted {
			if !coversValue(live[key], value) {
				return false
			}
		}
		return true
	case []any:
		live, ok := live.([]any)
		if !ok || len(live) != len(wanted) {
			return len(wanted) == 0 && len(live) == 0
		}
		for i := range wanted {
			if !coversValue(live[i], wanted[i]) {
				return false
			}
		}
		return true
	default:
		return equalScalars(live, wanted)
	}
}

// equalScalars compares values that are neither maps nor lists. Numbers can have different types: objects in code are not decoded from
// JSON.
func equalScalars(a, b any) bool {
	x, numeric := asNumber(a)
	y, both := asNumber(b)
	if numeric && both {
		return x == y
	}
	return reflect.DeepEqual(a, b)
}

func asNumber(v any) (float64, bool) {
	switch x := reflect.ValueOf(v); {
	case x.CanInt():
		return float64(x.Int()), true
	case x.CanFloat():
		return x.Float(), true
	}
	return 0, false
}
