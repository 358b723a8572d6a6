package isvc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxTimeout is the longest supported timeout. A larger number of seconds is a mistake or means "no timeout".
const maxTimeout = 30 * 24 * time.Hour

// predictor is the field for the engine in InferenceServices that predate component roles. OME migrates it to engine.
const predictor = "predictor"

// Read reads one object. The error names each field that has the wrong type. The Service shares maps with the object.
func Read(u *unstructured.Unstructured) (*Service, error) {
	s := &Service{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(),
		Created: u.GetCreationTimestamp().Time, Deleting: u.GetDeletionTimestamp() != nil,
		Labels: u.GetLabels(), Annotations: u.GetAnnotations(),
		Components: map[Role]*Component{}, Reported: map[Role]bool{}, Serving: map[Role]bool{},
	}
	r := reader{}
	spec, status := r.readObject(u.Object, "", "spec"), r.readObject(u.Object, "", "status")
	s.Mode = r.readMode(spec, "spec", s.Annotations)
	for _, role := range Roles {
		if c := r.readComponent(spec, string(role)); c != nil {
			s.Components[role] = c
		}
	}
	if s.Components[Engine] == nil {
		if c := r.readComponent(spec, predictor); c != nil {
			s.Components[Engine] = c
		}
	}
	replicas := r.readReplicaRefs(spec)
	for role := range replicas {
		if s.Components[role] == nil {
			s.Components[role] = &Component{Mode: OMENative}
		}
	}
	components := r.readObject(status, "status.", "components")
	for _, role := range Roles {
		if components[string(role)] != nil {
			s.Reported[role] = true
		}
		s.RuntimeComponents = s.RuntimeComponents || hasScaleTarget(components[string(role)])
		if hasServingInstances(components[string(role)], cmp.Or(replicas[role], s.Name+"-"+string(role))) {
			s.Serving[role] = true
		}
	}
	s.Conditions = r.readConditions(status)
	s.HasStatus, s.HasConditions, s.Version = status != nil, status["conditions"] != nil, u.GetResourceVersion()
	if len(r.wrong) > 0 {
		return nil, fmt.Errorf("read InferenceService: %s", strings.Join(r.wrong, "; "))
	}
	return s, nil
}

// readReplicaRefs reads spec.replicaRefs of OME 1.3: for each role, the names of InferenceReplicas that the user created. OME uses the
// first name of each role, and ignores the whole field unless it names an engine.
func (r *reader) readReplicaRefs(spec map[string]any) map[Role]string {
	refs := r.readObject(spec, "spec.", "replicaRefs")
	names := map[Role]string{}
	for _, role := range Roles {
		list := readField[[]any](r, refs, "spec.replicaRefs.", string(role), "a list")
		if len(list) == 0 {
			continue
		}
		name, ok := list[0].(string)
		if !ok {
			r.addWrongType("spec.replicaRefs."+string(role)+"[0]", "a string", list[0])
			continue
		}
		names[role] = name
	}
	if names[Engine] == "" {
		return nil
	}
	return names
}

// inferenceReplica is the kind of the scale target of components that OME 1.3 runs in mode OMENative.
const inferenceReplica = "InferenceReplica"

// hasServingInstances reports whether the status of a component has ready and serving instances of the InferenceReplica with the given
// name. OME 1.3 requires the same of a component that backs a route. A status in any other format is not an error: OME owns the status.
func hasServingInstances(component any, replica string) bool {
	fieldOf := func(v any, field string) any {
		object, _ := v.(map[string]any)
		return object[field]
	}
	target, counts := fieldOf(component, "scaleTargetRef"), fieldOf(component, "lifecycle")
	positive := func(v any) bool {
		n, ok := v.(int64)
		return ok && n > 0
	}
	return fieldOf(target, "apiVersion") == Resource.GroupVersion().String() && fieldOf(target, "kind") == inferenceReplica &&
		fieldOf(target, "name") == replica &&
		positive(fieldOf(counts, "readyReplicas")) && positive(fieldOf(counts, "servingReplicas"))
}

// hasScaleTarget reports whether the status of a component names its scale target, as OME 1.3 does for each component.
func hasScaleTarget(component any) bool {
	object, _ := component.(map[string]any)
	return object["scaleTargetRef"] != nil
}

// reader collects the fields that have the wrong type.
type reader struct{ wrong []string }

func (r *reader) addWrongType(path, want string, got any) {
	r.wrong = append(r.wrong, fmt.Sprintf("%s is %s, want %s", path, kindOf(got), want))
}

// kindOf describes the JSON type of a value.
func kindOf(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case bool, int64, float64:
		return fmt.Sprint(v)
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("%T", v)
}

// readField returns a field of one type, or the zero value if the field is absent.
func readField[T any](r *reader, parent map[string]any, path, field, want string) T {
	v, ok := parent[field].(T)
	if !ok && parent[field] != nil {
		r.addWrongType(path+field, want, parent[field])
	}
	return v
}

func (r *reader) readObject(parent map[string]any, path, field string) map[string]any {
	return readField[map[string]any](r, parent, path, field, "an object")
}

func (r *reader) readText(parent map[string]any, path, field string) string {
	return readField[string](r, parent, path, field, "a string")
}

// readInteger returns a field that is an integer, or nil if the field is absent.
func (r *reader) readInteger(parent map[string]any, path, field string) *int64 {
	switch v := parent[field].(type) {
	case nil:
		return nil
	case int64:
		return &v
	case float64:
		if n := int64(v); float64(n) == v {
			return &n
		}
		r.addWrongType(path+field, "an integer", v)
	default:
		r.addWrongType(path+field, "an integer", v)
	}
	return nil
}

// readMode returns the deployment mode of the whole service, or "" if it is not set or unknown.
func (r *reader) readMode(spec map[string]any, path string, annotations map[string]string) Mode {
	if m := knownMode(r.readText(spec, path+".", "deploymentMode")); m != "" {
		return m
	}
	return annotatedMode(annotations)
}

// annotatedMode returns the deployment mode in annotations, or "" if they have no known mode.
func annotatedMode(annotations map[string]string) Mode {
	if m, ok := annotations[ModeAnnotation]; ok {
		return knownMode(m)
	}
	return knownMode(annotations[ModeAnnotationTypo])
}

// knownMode returns a mode that OME knows, or "".
func knownMode(mode string) Mode {
	modes := []Mode{Serverless, RawDeployment, MultiNode, MultiNodeRayVLLM, OMENative, VirtualDeployment}
	if i := slices.Index(modes, Mode(mode)); i >= 0 {
		return modes[i]
	}
	return ""
}

// readComponent reads a component of the specification, or returns nil if it is not declared.
func (r *reader) readComponent(spec map[string]any, field string) *Component {
	raw := r.readObject(spec, "spec.", field)
	if raw == nil {
		return nil
	}
	path := "spec." + field + "."
	c := &Component{MinReplicas: r.readInteger(raw, path, "minReplicas"), Nodes: raw["leader"] != nil || raw["worker"] != nil}
	if seconds := r.readInteger(raw, path, "timeoutSeconds"); seconds != nil && *seconds > 0 && *seconds <= int64(maxTimeout/time.Second) {
		c.Timeout = time.Duration(*seconds) * time.Second
	}
	annotations := map[string]string{}
	for key, value := range r.readObject(raw, path, "annotations") {
		if text, ok := value.(string); ok {
			annotations[key] = text
		}
	}
	c.Mode = annotatedMode(annotations)
	return c
}

func (r *reader) readConditions(status map[string]any) []Condition {
	var conditions []Condition
	for i, item := range readField[[]any](r, status, "status.", "conditions", "a list") {
		path := fmt.Sprintf("status.conditions[%d].", i)
		c, ok := item.(map[string]any)
		if !ok {
			r.addWrongType(strings.TrimSuffix(path, "."), "an object", item)
			continue
		}
		conditions = append(conditions, Condition{
			Type: r.readText(c, path, "type"), Status: metav1.ConditionStatus(r.readText(c, path, "status")),
			Severity: r.readText(c, path, "severity"), LastTransitionTime: r.readText(c, path, "lastTransitionTime"),
			Reason: r.readText(c, path, "reason"), Message: r.readText(c, path, "message"),
		})
	}
	return conditions
}

// Object is a cached InferenceService: the Service, or the error of Read.
type Object struct {
	metav1.ObjectMeta

	Service *Service
	Err     error
}

// Transform is an informer transform that converts unstructured objects to Objects.
func Transform(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // already an Object, or the tombstone of a deleted object
	}
	s, err := Read(u)
	return &Object{Service: s, Err: err, ObjectMeta: metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		Generation: u.GetGeneration(), CreationTimestamp: u.GetCreationTimestamp(),
	}}, nil
}
