package sources

import (
	"cmp"
	"slices"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Labels of pods that name their role.
const (
	// LabelRole comes before the others.
	LabelRole = "llm-d.ai/role"
	// labelSetRole has the name of a role of a DisaggregatedSet.
	labelSetRole = "disaggregatedset.x-k8s.io/role"

	// OME has the component of an InferenceService. An engine without a decoder serves whole requests.
	labelComponent = "component"
	labelService   = "ome.io/inferenceservice"
	engine         = "engine"
	decoder        = "decoder"
)

// roleNames are the values of LabelRole, without those of servers that compute no tokens. A server that also encodes images has the role of
// its other work.
var roleNames = map[string]snapshot.Role{
	"prefill": snapshot.Prefill, "encode-prefill": snapshot.Prefill,
	"decode": snapshot.Decode, "encode-decode": snapshot.Decode,
	"": snapshot.Aggregated, "both": snapshot.Aggregated, "prefill-decode": snapshot.Aggregated,
	"encode-prefill-decode": snapshot.Aggregated,
}

// service is an InferenceService.
type service struct{ namespace, name string }

// readRole sets the role of a variant from the labels of its pods.
func (c *collector) readRole(v *Variant) {
	named := roleLabel(v.labels)
	role, known := roleNames[named]
	switch {
	case v.Problem != nil && v.Problem.Reason == snapshot.UnsupportedRole: // several roles
	case !known:
		v.rejectWith(snapshot.UnsupportedRole, "the pods have the role %q, for which no replicas can be planned: set the label %s of the pod template to prefill, decode or both", named, LabelRole)
	case named != "":
		v.role = role
	case v.labels[labelService] == "":
	case v.labels[labelComponent] == decoder:
		v.role = snapshot.Decode
	case v.labels[labelComponent] == engine && c.hasDecoder(service{v.Namespace, v.labels[labelService]}):
		v.role = snapshot.Prefill
	}
}

// roleLabel returns the role that labels name, empty if they name none.
func roleLabel(labels map[string]string) string {
	return cmp.Or(labels[LabelRole], labels[labelSetRole])
}

// hasDecoder reports whether a workload of an InferenceService decodes. Its decoder may be no variant.
func (c *collector) hasDecoder(s service) bool {
	if c.decoders == nil {
		c.decoders = map[service]bool{}
		for _, reader := range []kit.Reader{c.world.Deployments, c.world.StatefulSets, c.world.LeaderWorkerSets} {
			for _, w := range informers.ListAll[informers.Workload](reader) {
				if w.Labels[labelComponent] == decoder {
					c.decoders[service{w.Namespace, w.Labels[labelService]}] = true
				}
			}
		}
	}
	return c.decoders[s]
}

// splitRoles returns the variants of a group by their role, each as a group of its own, in no order. Some charts call servers of whole
// requests decode: without a prefill server, they are.
func (g *Group) splitRoles() []Group {
	prefills := slices.ContainsFunc(g.Variants, func(v Variant) bool { return v.role == snapshot.Prefill })
	byRole := map[snapshot.Role]*Group{}
	for i := range g.Variants {
		v, role := &g.Variants[i], g.Variants[i].role
		if role == snapshot.Decode && !prefills {
			role = snapshot.Aggregated
		}
		group := byRole[role]
		if group == nil {
			group = &Group{GroupKey: g.GroupKey, Class: g.Class}
			group.Role = role
			byRole[role] = group
		}
		group.Variants = append(group.Variants, *v)
	}
	all := make([]Group, 0, len(byRole))
	for _, group := range byRole {
		all = append(all, *group)
	}
	return all
}
