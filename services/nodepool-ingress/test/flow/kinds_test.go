//go:build system

package flow

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	traefikapi "fairlead.dev/pkg/apis/traefik/v1alpha1"
)

// define makes one of Traefik's kinds.
func (r *rig) define(definition string) {
	r.t.Helper()
	plural, _, _ := strings.Cut(definition, ".")
	kind := traefikKinds[plural]
	r.apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + definition + `}
spec:
  group: traefik.io
  names: {plural: ` + plural + `, singular: ` + strings.ToLower(kind) + `, kind: ` + kind + `}
  scope: Namespaced
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object,
    x-kubernetes-preserve-unknown-fields: true}}}]`)
	r.t.Cleanup(func() { // the next test of this API server
		_, err := r.cluster.Kubectl(context.Background(), "delete", "crd", "--ignore-not-found", definition)
		assert.NoError(r.t, err)
	})
}

var traefikKinds = map[string]string{
	"ingressroutes": "IngressRoute", "ingressroutetcps": "IngressRouteTCP", "ingressrouteudps": "IngressRouteUDP",
	"middlewares":    "Middleware",
	"middlewaretcps": "MiddlewareTCP", "serverstransports": "ServersTransport", "serverstransporttcps": "ServersTransportTCP",
	"tlsoptions": "TLSOption",
	"tlsstores":  "TLSStore", "traefikservices": "TraefikService",
}

// TestCustomResourcesOfTraefik reads Middlewares in a pool (traefik#11510) as soon as the API server serves all custom resources of
// Traefik, and not while one is missing: Traefik would wait for it at its start. The class says whether its controller reads them.
func TestCustomResourcesOfTraefik(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("hangzhou")
	r.deploy()
	r.start()
	r.create("edge", "{pools: [{name: hangzhou}]}")
	reads := func() string {
		class, err := r.kube.NetworkingV1().IngressClasses().Get(t.Context(), "hangzhou", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		on := slices.Contains(r.deployment("hangzhou").Spec.Template.Spec.Containers[0].Args, "--providers.kubernetesCRD=true")
		return strings.TrimSpace(class.Annotations[v1alpha1.AnnotationServed] + map[bool]string{true: " on"}[on])
	}
	r.await("edge", "hangzhou", conditionR, "True Ready")
	require.Empty(t, reads())

	definitions := traefikapi.Definitions()
	for _, definition := range definitions[1:] {
		r.define(definition)
	}
	r.settled("edge")
	assert.Empty(t, reads(), "one is missing")
	r.define(definitions[0])
	r.eventually(func() (string, bool) {
		s := reads()
		return s, s == traefikapi.SchemeGroupVersion.String()+" on"
	}, "Traefik reads its custom resources")
	_, err := r.cluster.Kubectl(t.Context(), "delete", "crd", definitions[3])
	require.NoError(t, err)
	r.eventually(func() (string, bool) { s := reads(); return s, s == "" }, "Traefik does not wait for what is gone")
}

// TestRoleForDefinitions lists each definition alone with the role of the chart, which names them.
func TestRoleForDefinitions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.chartObjects("templates/rbac.yaml")
	_, err := r.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tester"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rolePrefix},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "operator"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, definition := range traefikapi.Definitions() {
		r.eventually(func() (string, bool) { // the API server reads roles in the background
			_, err := r.cluster.Kubectl(t.Context(), "get", "--as=operator", "crd", "--field-selector=metadata.name="+definition)
			return fmt.Sprint(err), err == nil
		}, "%s", definition)
	}
	_, err = r.cluster.Kubectl(t.Context(), "get", "--as=operator", "crd")
	require.Error(t, err)
}
