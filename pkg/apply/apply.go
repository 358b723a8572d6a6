// Package apply writes single objects by server-side apply, and only if they differ.
//
// An object belongs to an owner, its controller reference. The wanted object is compared with the object in an informer:
//
//	live object                              action
//	none                                     create; if the name exists, the informer is late or does not see the object:
//	                                         get it, and go on below
//	with another controller, or none         none: ErrForeign
//	equal                                    none
//	anything else                            apply with force, for the uid in the informer
//
// A live object is equal if it has every wanted field, in lists every element in its place, and if its annotation
// HashAnnotation matches. The annotation holds a hash of the wanted object, for fields that are no longer wanted, and the
// generation that the object had after the apply: if another client changes the specification inside a list, where additions
// cannot be told from the API server's defaults, the generation differs. Fields that others add to maps, and further owners,
// are left alone.
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

// ErrForeign means that the object of that name has another owner. It is left as it is.
var ErrForeign = errors.New("the object has another owner")

// Result is what Apply did.
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

// New returns an Applier whose fields have that manager.
func New(client dynamic.Interface, manager string) *Applier {
	return &Applier{client: client, manager: manager}
}

// Apply creates or updates an object, and returns the stored object with its status. live is the object in an informer, nil for
// none. Apply changes neither argument. The wanted object has a controller reference, no status, and only fields that matter.
func (a *Applier) Apply(
	ctx context.Context, resource schema.GroupVersionResource, wanted, live *unstructured.Unstructured,
) (*unstructured.Unstructured, Result, error) {
	if err := Owned(wanted, live); err != nil {
		return live, Unchanged, failed("apply", wanted, err)
	}
	if !Differs(wanted, live) {
		return live, Unchanged, nil
	}
	client := a.client.Resource(resource).Namespace(wanted.GetNamespace())
	if live != nil {
		return a.update(ctx, client, withRecord(wanted, nextGeneration(wanted, live)), live)
	}
	stored, err := client.Create(ctx, withRecord(wanted, 1), metav1.CreateOptions{FieldManager: a.manager})
	switch {
	case err == nil:
		return stored, Created, nil
	case !apierrors.IsAlreadyExists(err):
		return nil, Unchanged, failed("create", wanted, err)
	}
	if live, err = client.Get(ctx, wanted.GetName(), metav1.GetOptions{}); err != nil {
		return nil, Unchanged, failed("get", wanted, err)
	}
	return a.Apply(ctx, resource, wanted, live)
}

// update applies the wanted object, with its record, to an object that exists and is owned.
func (a *Applier) update(ctx context.Context, client dynamic.ResourceInterface, next, live *unstructured.Unstructured) (*unstructured.Unstructured, Result, error) {
	if err := a.adopt(ctx, client, live); err != nil {
		return live, Unchanged, failed("take over fields of", next, err)
	}
	next.SetUID(live.GetUID()) // a conflict, if the object was created anew meanwhile
	stored, err := client.Apply(ctx, next.GetName(), next, metav1.ApplyOptions{FieldManager: a.manager, Force: true})
	if err != nil {
		return live, Unchanged, failed("apply", next, err)
	}
	return stored, Updated, nil
}

// adopt turns fields that this manager created into fields that it applied: otherwise fields that are no longer wanted would
// stay.
func (a *Applier) adopt(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured) error {
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live.DeepCopy(), sets.New(a.manager), a.manager)
	if err != nil || patch == nil {
		return err
	}
	_, err = client.Patch(ctx, live.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// Annotate sets an annotation on the version of an object that an informer has, and removes it if the value is empty. Apply
// leaves the annotation alone.
func (a *Applier) Annotate(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured, key, value string) error {
	var annotation any
	if value != "" {
		annotation = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion(), "annotations": map[string]any{key: annotation},
	}})
	if err != nil {
		panic(fmt.Sprintf("patch is not JSON: %v", err)) // not reached: it is made of texts
	}
	_, err = a.client.Resource(resource).Namespace(live.GetNamespace()).
		Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: a.manager})
	return failed("annotate", live, err)
}

// Delete deletes an object that owner controls. It returns nil if the object is gone, or another one has its name.
func (a *Applier) Delete(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured, owner types.UID) error {
	if controller := metav1.GetControllerOf(live); controller == nil || controller.UID != owner {
		return failed("delete", live, ErrForeign)
	}
	uid := live.GetUID()
	err := a.client.Resource(resource).Namespace(live.GetNamespace()).Delete(ctx, live.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return failed("delete", live, err)
}

// failed adds the verb and the object to an error, and returns nil for nil.
func failed(verb string, object *unstructured.Unstructured, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s/%s: %w", verb, object.GetKind(), object.GetNamespace(), object.GetName(), err)
}

// Owned returns ErrForeign if the live object does not have the controller of the wanted one.
func Owned(wanted, live *unstructured.Unstructured) error {
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
	if live == nil || !recorded(wanted, live) || !hasOwners(live, wanted) {
		return true
	}
	rest := wanted.DeepCopy()
	rest.SetOwnerReferences(nil)
	return !covers(live.Object, rest.Object)
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
	annotations[HashAnnotation] = record(wanted, generation)
	next.SetAnnotations(annotations)
	return next
}

// recorded reports whether the last apply was of the same wanted object, and nobody has changed the specification since. Some
// kinds, such as Service, count no generations.
func recorded(wanted, live *unstructured.Unstructured) bool {
	r := live.GetAnnotations()[HashAnnotation]
	if live.GetGeneration() == 0 {
		return strings.HasPrefix(r, fingerprint(wanted))
	}
	return r == record(wanted, live.GetGeneration())
}

// record returns the value of HashAnnotation.
func record(wanted *unstructured.Unstructured, generation int64) string {
	return fingerprint(wanted) + strconv.FormatInt(generation, 10)
}

// fingerprint returns the part of a record that does not depend on the live object.
func fingerprint(wanted *unstructured.Unstructured) string {
	return hash(wanted.Object) + "." + specHash(wanted) + "."
}

// nextGeneration predicts the generation of an object after an apply: one more if the specification changes. If the prediction is
// wrong, the next Apply corrects the record.
func nextGeneration(wanted, live *unstructured.Unstructured) int64 {
	parts := strings.Split(live.GetAnnotations()[HashAnnotation], ".")
	if len(parts) == 3 && parts[1] == specHash(wanted) && covers(specOf(live), specOf(wanted)) {
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

func specHash(u *unstructured.Unstructured) string { return hash(specOf(u))[:8] }

// hash returns a hash of a value. JSON sorts the keys of objects.
func hash(value map[string]any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("unstructured object is not JSON: %v", err)) // not reached: it consists of JSON values
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// covers reports whether a value has everything that a wanted value has.
func covers(live, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return len(wanted) == 0 && live == nil
		}
		for key, value := range wanted {
			if !covers(live[key], value) {
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
			if !covers(live[i], wanted[i]) {
				return false
			}
		}
		return true
	default:
		return equal(live, wanted)
	}
}

// equal compares values that are neither maps nor lists. Numbers have one type after JSON, and any type in objects from code.
func equal(a, b any) bool {
	x, numeric := number(a)
	y, both := number(b)
	if numeric && both {
		return x == y
	}
	return reflect.DeepEqual(a, b)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case int:
		return float64(v), true
	case int32:
		return float64(v), true
	}
	return 0, false
}
