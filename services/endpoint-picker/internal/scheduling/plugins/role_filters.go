package plugins

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// RoleLabel is the label of pods with the role of a model server.
const RoleLabel = "llm-d.ai/role"

// Roles of a model server.
const (
	roleEncode              = "encode"
	rolePrefill             = "prefill"
	roleDecode              = "decode"
	roleBoth                = "both"
	roleEncodePrefill       = "encode-prefill"
	rolePrefillDecode       = "prefill-decode"
	roleEncodePrefillDecode = "encode-prefill-decode"
)

// Role returns the role that the labels of a pod name: one of upstream's roles, or "other"; empty if they name none.
func Role(labels map[string]string) string {
	switch role, named := labels[RoleLabel]; {
	case !named:
		return ""
	case slices.Contains([]string{roleEncode, rolePrefill, roleDecode, roleBoth, roleEncodePrefill, rolePrefillDecode,
		roleEncodePrefillDecode}, role):
		return role
	default:
		return "other" // than those that upstream defines
	}
}

func roleFilterType(name string, f roleFilter) Type {
	return Type{Name: name, Section: SectionProfile, Identity: true, New: withDefaults(f)}
}

// roleFilter keeps the model servers with one of the roles.
type roleFilter struct {
	noParameters

	roles       []string
	withoutRole bool // keep servers without the label, too
}

// Filter keeps the candidates with one of the roles.
func (f *roleFilter) Filter(_ *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	return keepServers(f, candidates)
}

// AcceptsServer reports whether a server has one of the roles.
func (f *roleFilter) AcceptsServer(s *scheduling.Server) bool {
	role, ok := s.Labels[RoleLabel]
	if !ok {
		return f.withoutRole
	}
	return slices.Contains(f.roles, role)
}
