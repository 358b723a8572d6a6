package isvc

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxTimeout is the longest timeout that counts; a larger number of seconds is a mistake, or means none.
const maxTimeout = 30 * 24 * time.Hour

// predictor is what engines were called before there were roles. OME makes an engine of it.
const predictor = "predictor"

// Read reads one object. An error names the field that has another type than OME gives it. It keeps maps of the object.
func Read(u *unstructured.Unstructured) (*Service, error) {
	s := &Service{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), Generation: u.GetGeneration(),
		Created: u.GetCreationTimestamp().Time, Deleting: u.GetDeletionTimestamp() != nil,
		Labels: u.GetLabels(), Annotations: u.GetAnnotations(),
		Components: map[Role]*Component{}, Reported: map[Role]bool{},
	}
	r := reader{}
	spec, status := r.object(u.Object, "", "spec"), r.object(u.Object, "", "status")
	s.Mode = r.mode(spec, "spec", s.Annotations)
	for _, role := range Roles {
		if c := r.component(spec, string(role)); c != nil {
			s.Components[role] = c
		}
	}
	if s.Components[Engine] == nil {
		if c := r.component(spec, predictor); c != nil {
			s.Components[Engine] = c
		}
	}
	components := r.object(status, "status.", "components")
	for _, role := range Roles {
		if components[string(role)] != nil {
			s.Reported[role] = true
		}
	}
	s.Conditions = r.conditions(status)
	s.HasStatus, s.HasConditions, s.Version = status != nil, status["conditions"] != nil, u.GetResourceVersion()
	if len(r.wrong) > 0 {
		return nil, fmt.Errorf("read InferenceService: %s", strings.Join(r.wrong, "; "))
	}
	return s, nil
}

// reader collects what is wrong.
type reader struct{ wrong []string }

func (r *reader) fail(path, want string, got any) {
	r.wrong = append(r.wrong, fmt.Sprintf("%s is %s, want %s", path, kindOf(got), want))
}

// kindOf says in JSON's words what a value is.
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

// object returns a field that is an object, nil if there is none.
func (r *reader) object(of map[string]any, path, field string) map[string]any {
	switch v := of[field].(type) {
	case nil:
		return nil
	case map[string]any:
		return v
	default:
		r.fail(path+field, "an object", v)
		return nil
	}
}

func (r *reader) text(of map[string]any, path, field string) string {
	switch v := of[field].(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		r.fail(path+field, "a text", v)
		return ""
	}
}

// integer returns a field that is a whole number, nil if there is none.
func (r *reader) integer(of map[string]any, path, field string) *int64 {
	switch v := of[field].(type) {
	case nil:
		return nil
	case int64:
		return &v
	case float64:
		if n := int64(v); float64(n) == v {
			return &n
		}
		r.fail(path+field, "a whole number", v)
	default:
		r.fail(path+field, "a whole number", v)
	}
	return nil
}

// mode returns how all components of a service are run, if it says so and it is known.
func (r *reader) mode(spec map[string]any, path string, annotations map[string]string) Mode {
	if m := known(r.text(spec, path+".", "deploymentMode")); m != "" {
		return m
	}
	return annotatedMode(annotations)
}

// annotatedMode returns the mode that annotations give, if they do and it is known.
func annotatedMode(annotations map[string]string) Mode {
	if m, said := annotations[ModeAnnotation]; said {
		return known(m)
	}
	return known(annotations[ModeAnnotationTypo])
}

// known returns a mode that OME knows, or none.
func known(mode string) Mode {
	all := []Mode{Serverless, RawDeployment, MultiNode, MultiNodeRayVLLM, OMENative, VirtualDeployment}
	if i := slices.Index(all, Mode(mode)); i >= 0 {
		return all[i]
	}
	return ""
}

// component reads what the specification says of a component, nil if it has none.
func (r *reader) component(spec map[string]any, field string) *Component {
	raw := r.object(spec, "spec.", field)
	if raw == nil {
		return nil
	}
	path := "spec." + field + "."
	c := &Component{MinReplicas: r.integer(raw, path, "minReplicas"), Nodes: raw["leader"] != nil || raw["worker"] != nil}
	if seconds := r.integer(raw, path, "timeoutSeconds"); seconds != nil && *seconds > 0 && *seconds <= int64(maxTimeout/time.Second) {
		c.Timeout = time.Duration(*seconds) * time.Second
	}
	annotations := map[string]string{}
	for key, value := range r.object(raw, path, "annotations") {
		if text, ok := value.(string); ok {
			annotations[key] = text
		}
	}
	c.Mode = annotatedMode(annotations)
	return c
}

func (r *reader) conditions(status map[string]any) []Condition {
	raw, ok := status["conditions"].([]any)
	if !ok && status["conditions"] != nil {
		r.fail("status.conditions", "a list", status["conditions"])
	}
	var conditions []Condition
	for i, item := range raw {
		path := fmt.Sprintf("status.conditions[%d].", i)
		c, ok := item.(map[string]any)
		if !ok {
			r.fail(strings.TrimSuffix(path, "."), "an object", item)
			continue
		}
		conditions = append(conditions, Condition{
			Type: r.text(c, path, "type"), Status: metav1.ConditionStatus(r.text(c, path, "status")), Severity: r.text(c, path, "severity"),
			LastTransitionTime: r.text(c, path, "lastTransitionTime"), Reason: r.text(c, path, "reason"), Message: r.text(c, path, "message"),
		})
	}
	return conditions
}

// Object is an InferenceService as a cache keeps it: what was read, or why it could not be.
type Object struct {
	metav1.ObjectMeta

	Service *Service
	Err     error
}

// Transform turns what a dynamic informer reads into an Object.
func Transform(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // it is one already, or the name of one that is gone
	}
	s, err := Read(u)
	return &Object{Service: s, Err: err, ObjectMeta: metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		Generation: u.GetGeneration(), CreationTimestamp: u.GetCreationTimestamp(),
	}}, nil
}
