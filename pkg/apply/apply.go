// Package apply keeps objects as a controller wants them, one at a time, by server-side apply.
//
// An object belongs to an owner, its controller reference. What is wanted is compared with what an informer last saw:
//
//	live object                              what is done
//	none                                     create; if there is one all the same, the informer is late or does not
//	                                         see it: look at it, and go on below
//	with another controller, or none         nothing: ErrForeign
//	has all that is wanted                   nothing
//	anything else                            apply, with force, for the uid that was seen
//
// An object has all that is wanted if it has every field with that value, in lists every element in its place, and was
// applied for the same wish: a field that is wanted no more is in neither, so a hash of the wish is kept in an annotation.
// What the API server or others add to maps, and further owners, are left alone, and are no difference.
package apply

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"
)

// HashAnnotation is where the hash of the wish is kept.
const HashAnnotation = "fairlead.dev/applied"

// ErrForeign means that the object of that name belongs to somebody else. It is left as it is.
var ErrForeign = errors.New("it belongs to somebody else")

// Result is what Apply has done.
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

// Apply makes an object what is wanted, and returns it as it is then, with its status. live is how an informer knows it, nil if
// it does not; neither is changed. What is wanted has a controller reference, no status, and no field that it does not care
// about.
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
	next := withHash(wanted)
	if live != nil {
		return a.update(ctx, client, next, live)
	}
	stored, err := client.Create(ctx, next, metav1.CreateOptions{FieldManager: a.manager})
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

// update applies what is wanted, with its hash, to an object that is there and owned.
func (a *Applier) update(ctx context.Context, client dynamic.ResourceInterface, next, live *unstructured.Unstructured) (*unstructured.Unstructured, Result, error) {
	if err := a.adopt(ctx, client, live); err != nil {
		return live, Unchanged, failed("take over fields of", next, err)
	}
	next.SetUID(live.GetUID()) // of one that was made anew meanwhile: a conflict
	stored, err := client.Apply(ctx, next.GetName(), next, metav1.ApplyOptions{FieldManager: a.manager, Force: true})
	if err != nil {
		return live, Unchanged, failed("apply", next, err)
	}
	return stored, Updated, nil
}

// adopt makes fields that were created by this manager fields that it has applied: else those that are wanted no more would
// stay.
func (a *Applier) adopt(ctx context.Context, client dynamic.ResourceInterface, live *unstructured.Unstructured) error {
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live.DeepCopy(), sets.New(a.manager), a.manager)
	if err != nil || patch == nil {
		return err
	}
	_, err = client.Patch(ctx, live.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// Annotate gives an object of the version that was seen an annotation, and takes it away if the value is empty. The next
// Apply leaves it as it is, unless it changes something else.
func (a *Applier) Annotate(ctx context.Context, resource schema.GroupVersionResource, live *unstructured.Unstructured, key, value string) error {
	var said any
	if value != "" {
		said = value
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion(), "annotations": map[string]any{key: said},
	}})
	if err != nil {
		panic(fmt.Sprintf("patch is not JSON: %v", err)) // not reached: it is made of texts
	}
	_, err = a.client.Resource(resource).Namespace(live.GetNamespace()).
		Patch(ctx, live.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: a.manager})
	return failed("annotate", live, err)
}

// Delete removes an object that owner controls. It is no error if it is gone, or another one has its name.
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

// failed says of which object an error is; nil of none.
func failed(verb string, object *unstructured.Unstructured, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s/%s: %w", verb, object.GetKind(), object.GetNamespace(), object.GetName(), err)
}

// Owned returns ErrForeign if the live object is not controlled by who controls the wanted one.
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

// Differs reports whether the live object lacks anything that is wanted, or has what was wanted before.
func Differs(wanted, live *unstructured.Unstructured) bool {
	if live == nil || live.GetAnnotations()[HashAnnotation] != hash(wanted) || !hasOwners(live, wanted) {
		return true
	}
	rest := wanted.DeepCopy()
	rest.SetOwnerReferences(nil)
	return !covers(live.Object, rest.Object)
}

// hasOwners reports whether the wanted owners are among those of the live object.
func hasOwners(live, wanted *unstructured.Unstructured) bool {
	have := live.GetOwnerReferences()
	return !slices.ContainsFunc(wanted.GetOwnerReferences(), func(w metav1.OwnerReference) bool {
		return !slices.ContainsFunc(have, func(h metav1.OwnerReference) bool { return reflect.DeepEqual(h, w) })
	})
}

// withHash returns what is wanted, with its hash.
func withHash(wanted *unstructured.Unstructured) *unstructured.Unstructured {
	next := wanted.DeepCopy()
	annotations := next.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[HashAnnotation] = hash(wanted)
	next.SetAnnotations(annotations)
	return next
}

// hash stands for what is wanted. JSON has the keys of objects in their order.
func hash(wanted *unstructured.Unstructured) string {
	text, err := json.Marshal(wanted.Object)
	if err != nil {
		panic(fmt.Sprintf("unstructured object is not JSON: %v", err)) // not reached: it is made of what JSON has
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// covers reports whether a value has all of a wanted one.
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

// equal compares values that are neither maps nor lists. Numbers are of one type in what was read from JSON, and of any in
// what was made by hand.
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
