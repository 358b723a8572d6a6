package api

import (
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/wire"
)

// selector decides which objects a client sees.
type selector struct {
	namespace string
	label     labels.Selector
	field     fields.Selector
	encoder   encoder
	fields    func(object message) fields.Set // nil: the kind has no other fields
}

// fieldsOf are the fields that selectors of a kind may use beside metadata.name and metadata.namespace.
var fieldsOf = map[string]func(object message) fields.Set{
	"v1/secrets": func(o message) fields.Set { return fields.Set{"type": string(o.(*corev1.Secret).Type)} },
	"v1/nodes": func(o message) fields.Set {
		return fields.Set{"spec.unschedulable": strconv.FormatBool(o.(*corev1.Node).Spec.Unschedulable)}
	},
	"v1/namespaces": func(o message) fields.Set {
		n := o.(*corev1.Namespace)
		return fields.Set{"status.phase": string(n.Status.Phase), "name": n.Name}
	},
	"v1/services": func(o message) fields.Set {
		s := o.(*corev1.Service)
		return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
	},
	"v1/pods": func(o message) fields.Set {
		p := o.(*corev1.Pod)
		return fields.Set{
			"spec.nodeName": p.Spec.NodeName, "spec.restartPolicy": string(p.Spec.RestartPolicy),
			"spec.schedulerName": p.Spec.SchedulerName, "spec.serviceAccountName": p.Spec.ServiceAccountName,
			"spec.hostNetwork": strconv.FormatBool(p.Spec.HostNetwork), "status.phase": string(p.Status.Phase),
			"status.podIP": p.Status.PodIP, "status.nominatedNodeName": p.Status.NominatedNodeName,
		}
	},
}

// newSelector returns the selector of a request, or an error for fields that the kind does not offer.
func newSelector(req request, served ServedStore, o listOptions) (selector, error) {
	s := selector{namespace: req.namespace, label: o.LabelSelector, field: o.FieldSelector, encoder: newEncoder(served.Store, encoding{})}
	known := fields.Set{}
	if s.fields = fieldsOf[served.Resource.Path()]; s.fields != nil && s.encoder.kind != "" {
		empty, err := s.encoder.decodeObject(nil) // has the names of the fields
		if err != nil {
			return selector{}, err
		}
		known = s.fields(empty)
	}
	for _, r := range o.FieldSelector.Requirements() {
		if _, ok := known[r.Field]; !ok && r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return selector{}, badRequestError("field label not supported: %s", r.Field)
		}
	}
	return s, nil
}

// matchesObject reports whether the client sees an object.
func (s selector) matchesObject(o *store.Object) (bool, error) {
	namespace, name, namespaced := strings.Cut(o.Key, "/")
	if !namespaced {
		namespace, name = "", namespace
	}
	if s.namespace != "" && namespace != s.namespace {
		return false, nil
	}
	if !s.label.Empty() {
		meta, err := wire.ParseMeta(s.encoder.stored, o.Data)
		if err != nil {
			return false, err
		}
		if !s.label.Matches(labels.Set(meta.Labels)) {
			return false, nil
		}
	}
	if s.field.Empty() {
		return true, nil
	}
	set := fields.Set{"metadata.name": name, "metadata.namespace": namespace}
	return s.matchesFields(o, set)
}

func (s selector) matchesFields(o *store.Object, set fields.Set) (bool, error) {
	for _, r := range s.field.Requirements() {
		if _, known := set[r.Field]; known {
			continue
		}
		m, err := s.encoder.decodeObject(o.Data)
		if err != nil {
			return false, err
		}
		maps.Copy(set, s.fields(m))
		break
	}
	return s.field.Matches(set), nil
}
