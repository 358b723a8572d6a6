//go:build system

package flow

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
)

// webhooks are admission webhooks as OpenYurt's operator leaves them behind when it is uninstalled: nothing answers, and they fail closed.
const webhooks = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: yurt-app-manager}
webhooks:
- name: vyurtingress.kb.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 1
  clientConfig: {url: "https://127.0.0.1:1/validate-apps-openyurt-io-v1alpha1-yurtingress"}
  rules: [{apiGroups: [apps.openyurt.io], apiVersions: [v1alpha1], operations: [CREATE, UPDATE, DELETE], resources: [yurtingresses]}]
`

// refused waits until the API server refuses updates of a YurtIngress: it reads configurations of webhooks in the background.
func (r *rig) refused(name string) {
	r.t.Helper()
	r.eventually(func() (string, bool) {
		_, err := r.client.Resource(informers.YurtIngresses).Patch(r.t.Context(), name, types.MergePatchType, []byte(
			`{"metadata": {"labels": {"example.com/probe": "x"}}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return fmt.Sprint(err), err != nil
	}, "updates of %s are refused", name)
}

// TestOldWebhooks has the webhooks of OpenYurt's operator in the way, when an object gets its finalizer, and when it is deleted.
func TestOldWebhooks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("hangzhou")
	r.deploy()
	y := r.create("edge", `{pools: [{name: hangzhou}]}`)
	remove := func() {
		_, err := r.cluster.Kubectl(t.Context(), "delete", "--ignore-not-found", "validatingwebhookconfiguration", "yurt-app-manager")
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_ = r.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(context.Background(), "yurt-app-manager",
			metav1.DeleteOptions{})
	})
	r.apply(webhooks)
	r.refused("edge")
	r.start()
	r.await("edge", "hangzhou", conditionR, "False AdmissionRejected")
	assert.Empty(t, r.owned(y.UID, ""), "nothing comes before the finalizer")
	message := ""
	for _, c := range r.get("edge").Status.ObjectConditions {
		if c.Type == conditionR {
			message = c.Message
		}
	}
	assert.Contains(t, message, "vyurtingress.kb.io", "the message names the webhook")
	remove()
	r.await("edge", "hangzhou", conditionR, ready)

	r.delete(informers.YurtIngresses, "", "edge")
	r.eventually(func() (string, bool) { return "", r.get("edge") == nil }, "the object is gone")
	y = r.create("edge", `{pools: [{name: hangzhou}]}`)
	r.await("edge", "hangzhou", conditionR, ready)
	// An object that is being deleted while the webhooks reject the removal of its finalizer. Another finalizer keeps it until they are
	// there.
	r.patch("edge", `{"metadata": {"finalizers": ["`+v1alpha1.Finalizer+`", "example.com/test"]}}`)
	r.delete(informers.YurtIngresses, "", "edge")
	r.eventually(func() (string, bool) {
		got := r.get("edge").Finalizers
		return fmt.Sprint(got), len(got) == 1 && got[0] == "example.com/test"
	}, "only the finalizer of the program is removed")
	assert.Empty(t, r.owned(y.UID, ""))
	r.patch("edge", `{"metadata": {"finalizers": null}}`)

	y = r.create("edge", `{pools: [{name: hangzhou}]}`)
	r.await("edge", "hangzhou", conditionR, ready)
	r.apply(strings.ReplaceAll(webhooks, "CREATE, UPDATE, DELETE", "UPDATE"))
	r.refused("edge")
	r.delete(informers.YurtIngresses, "", "edge")
	r.eventually(func() (string, bool) {
		for _, c := range r.get("edge").Status.ObjectConditions {
			if c.Type == conditionR && c.Reason == v1alpha1.ReasonAdmissionRejected {
				return "", true
			}
		}
		return fmt.Sprint(r.get("edge").Status.ObjectConditions), false
	}, "the condition tells why the object remains")
	assert.Empty(t, r.owned(y.UID, ""), "the objects of the pool are gone")
	remove()
	r.eventually(func() (string, bool) { return "", r.get("edge") == nil }, "the object is gone")
}

// TestOldCRDs runs with the CRDs of OpenYurt's operator, which drop most fields. The fields that they have are true, and the program
// settles.
func TestOldCRDs(t *testing.T) {
	t.Parallel()
	for _, release := range []string{"v0.6.0", "main"} {
		t.Run(release, func(t *testing.T) {
			r := newRigIn(t, cluster.Start(t, cluster.ControlPlaneOnly), "testdata/yurtingresses-"+release+".yaml")
			r.pools("hangzhou", "beijing")
			r.deploy()
			// As the webhook of the operator completes objects.
			spec := `{ingress_controller_replicas_per_pool: 2, ingress_controller_image: "k8s.gcr.io/ingress-nginx/controller:v0.48.1", ` +
				`ingress_webhook_certgen_image: "docker.io/jettech/kube-webhook-certgen:v1.5.1", pools: [{name: hangzhou}, {name: ` +
				`beijing}]}`
			if release == "main" {
				spec = `{ingressControllerReplicasPerPool: 2, ingressControllerImage: ` +
					`"registry.k8s.io/ingress-nginx/controller:v0.48.1", ` +
					`pools: [{name: hangzhou}, {name: beijing}]}`
			}
			y := r.create("edge", spec)
			r.patch("edge", `{"metadata": {"finalizers": ["`+v1alpha1.Finalizer+`"]}}`)
			r.start()
			r.eventually(func() (string, bool) { s := r.get("edge").Status; return fmt.Sprint(s), s.ReadyNum == 2 }, "both pools are ready")
			for _, pool := range []string{"hangzhou", "beijing"} {
				assert.Equal(t, int32(2), *r.deployment(pool).Spec.Replicas)
				assert.True(t, strings.HasPrefix(image(r.deployment(pool)), traefik+":"),
					"no user chose the image that the webhook has written")
			}
			assert.Empty(t, r.get("edge").Status.Pools, "the CRD drops the field")
			r.settled("edge")
			r.eventually(func() (string, bool) {
				events, err := r.cluster.Kubectl(t.Context(), "get", "events", "-o=jsonpath={.items[*].reason}")
				require.NoError(t, err)
				return events, strings.Contains(events, v1alpha1.ReasonOutdatedCRD)
			}, "an Event tells of the CRD")

			r.apply(read(t, crdFile))
			r.eventually(func() (string, bool) { // the API server reads definitions in the background, and drops unknown fields until then
				r.patch("edge", `{"spec": {"updateStrategy": {"maxUnavailablePools": 2}}}`)
				return "", r.get("edge").Spec.UpdateStrategy != nil
			}, "the new CRD is in force")
			r.await("edge", "hangzhou", conditionR, ready)
			r.delete(informers.YurtIngresses, "", "edge")
			r.eventually(func() (string, bool) { return "", r.get("edge") == nil }, "the object is gone")
			assert.Empty(t, r.owned(y.UID, ""))
		})
	}
}
