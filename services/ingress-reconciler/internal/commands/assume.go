package commands

import (
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// assumptions complete manifests that were not read from a cluster. Such manifests have no UID and no status, and OME has not created
// Services for them.
type assumptions struct {
	services   bool
	components []string
	port       int32
	namespace  string // for services without a namespace
}

// validate returns an error for invalid flags.
func (a *assumptions) validate() error {
	for _, c := range a.components {
		if !slices.Contains(isvc.Roles, isvc.Role(c)) {
			return fmt.Errorf("--assume-components %q is not one of router, engine, decoder", c)
		}
	}
	if a.port < 1 || a.port > 65535 {
		return fmt.Errorf("--assume-port %d is not a port", a.port)
	}
	return nil
}

// completeWorld adds the missing namespaces, UIDs, Services and conditions of InferenceServices. It prints each assumed namespace and
// Service.
func (a *assumptions) completeWorld(w *dryrun.World, log io.Writer) {
	existing := map[identity]bool{}
	owned := map[types.UID][]string{} // components that have a Service, by the uid of the InferenceService
	for _, u := range w.Objects {
		existing[identityOf(u)] = true
		if owner := metav1.GetControllerOf(u); owner != nil && u.GetAPIVersion() == "v1" && u.GetKind() == "Service" {
			owned[owner.UID] = append(owned[owner.UID], u.GetLabels()[backend.LabelComponent])
		}
	}
	for _, u := range slices.Clone(w.Objects) {
		if isService(u) {
			a.completeService(w, u, existing, owned, log)
		}
	}
}

func (a *assumptions) completeService(w *dryrun.World, u *unstructured.Unstructured, existing map[identity]bool,
	owned map[types.UID][]string, log io.Writer,
) {
	if u.GetNamespace() == "" {
		u.SetNamespace(a.namespace)
		fmt.Fprintf(log, "%s/%s: assumed namespace %s\n", a.namespace, u.GetName(), a.namespace)
	}
	name := u.GetNamespace() + "/" + u.GetName()
	s, err := isvc.Read(u)
	if err != nil || !a.services {
		return // plan prints the error
	}
	roles := a.assumedRoles(s)
	if len(roles) == 0 && len(s.Reported) == 0 {
		fmt.Fprintf(log, "%s: the specification names no component: give --assume-components engine\n", name)
	}
	if s.UID == "" {
		u.SetUID(types.UID("assumed-" + s.Namespace + "-" + s.Name))
	}
	for _, r := range roles {
		service := backend.ServiceName(s.Name, r)
		if existing[identity{kind: "Service", namespace: s.Namespace, name: service}] || slices.Contains(owned[u.GetUID()], string(r)) {
			continue
		}
		w.Objects = append(w.Objects, a.assumedService(u, r))
		ready := "ready"
		if !setReady(u, s, isvc.ReadyTypes[r]) {
			ready = "with the readiness that its status reports"
		}
		fmt.Fprintf(log, "%s: assumed Service %s port %d for the %s, %s\n", name, service, a.port, r, ready)
	}
}

// assumedRoles returns the components that need a Service.
func (a *assumptions) assumedRoles(s *isvc.Service) []isvc.Role {
	var roles []isvc.Role
	for _, r := range isvc.Roles {
		if s.Components[r] != nil || slices.Contains(a.components, string(r)) {
			roles = append(roles, r)
		}
	}
	return roles
}

// assumedService returns the Service that OME would create for a component.
func (a *assumptions) assumedService(owner *unstructured.Unstructured, r isvc.Role) *unstructured.Unstructured {
	labels := map[string]any{backend.LabelService: owner.GetName(), backend.LabelComponent: string(r)}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{
			"namespace": owner.GetNamespace(), "name": backend.ServiceName(owner.GetName(), r), "labels": labels,
			"ownerReferences": []any{map[string]any{
				"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(), "name": owner.GetName(), "uid": string(owner.GetUID()),
				"controller": true,
			}},
		},
		"spec": map[string]any{
			"selector": labels,
			"ports":    []any{map[string]any{"name": "http1", "port": int64(a.port), "protocol": "TCP"}},
		},
	}}
}

// setReady adds the condition of a ready component, unless the service has a condition of that type.
func setReady(u *unstructured.Unstructured, s *isvc.Service, conditionType string) bool {
	if slices.ContainsFunc(s.Conditions, func(c isvc.Condition) bool { return c.Type == conditionType }) {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	conditions = append(conditions, map[string]any{"type": conditionType, "status": "True"})
	return unstructured.SetNestedSlice(u.Object, conditions, "status", "conditions") == nil
}
