package flow

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

const (
	ready      = "True Ready"
	traefik    = "docker.io/library/traefik"
	conditionR = v1alpha1.ConditionReady
)

// TestTwoPools creates two pools, changes, empties and removes one of them, and deletes the object. The other pool is not written meanwhile.
func TestTwoPools(t *testing.T) {
	r := newRig(t)
	r.pools("hangzhou", "beijing")
	r.deploy()
	r.start()
	y := r.create("edge", `{pools: [{name: hangzhou}, {name: beijing}]}`)
	r.await("edge", "hangzhou", conditionR, ready)
	r.await("edge", "beijing", conditionR, ready)
	r.settled("edge")

	status := r.get("edge").Status
	assert.Equal(t, []string{"hangzhou", "beijing"}, status.Conditions.ReadyPools)
	assert.Empty(t, status.Conditions.UnreadyPools)
	assert.Equal(t, int32(2), status.ReadyNum)
	assert.Equal(t, int32(0), status.UnreadyNum)
	assert.Equal(t, int32(1), status.Replicas)
	assert.True(t, strings.HasPrefix(status.Image, traefik+":"), status.Image)
	assert.Contains(t, r.get("edge").Finalizers, v1alpha1.Finalizer)
	_, err := r.cluster.Kubectl(t.Context(), "wait", "yurtingress/edge", "--timeout=5s",
		`--for=jsonpath={.status.pools[?(@.name=="hangzhou")].conditions[?(@.type=="Ready")].status}=True`)
	require.NoError(t, err, "the documented command")

	class := r.owned(y.UID, "hangzhou")["IngressClass/hangzhou"]
	require.NotNil(t, class, "the class of a pool is its name")
	assert.NotContains(t, class.GetAnnotations(), "ingressclass.kubernetes.io/is-default-class")
	for key, u := range r.owned(y.UID, "") {
		assert.Equal(t, []metav1.OwnerReference{plan.OwnerReference("edge", y.UID)}, u.GetOwnerReferences(), key)
	}

	other := func() string {
		versions := map[string]string{}
		for key, u := range r.owned(y.UID, "beijing") {
			versions[key] = u.GetResourceVersion()
		}
		return fmt.Sprint(versions)
	}
	before := other()
	r.patch("edge", `{"spec": {"pools": [{"name": "hangzhou", "image": "`+traefik+`:v3.0.0", "replicas": 2}, {"name": "beijing"}]}}`)
	r.eventually(func() (string, bool) { got := image(r.deployment("hangzhou")); return got, got == traefik+":v3.0.0" }, "the image changes")
	r.await("edge", "hangzhou", conditionR, ready)
	assert.Equal(t, int32(2), r.pool("edge", "hangzhou").ReadyReplicas)

	r.patch("edge", `{"spec": {"pools": [{"name": "hangzhou", "replicas": 0}, {"name": "beijing"}]}}`)
	r.await("edge", "hangzhou", conditionR, "True ScaledToZero")
	assert.Equal(t, int32(0), *r.deployment("hangzhou").Spec.Replicas, "0 replicas are 0 replicas")
	assert.Contains(t, r.owned(y.UID, "hangzhou"), "IngressClass/hangzhou", "an empty pool keeps its class")

	r.patch("edge", `{"spec": {"pools": [{"name": "beijing"}]}}`)
	r.eventually(func() (string, bool) {
		left := r.owned(y.UID, "hangzhou")
		return fmt.Sprint(left), len(left) == 0 && r.pool("edge", "hangzhou") == nil
	}, "the pool is removed")
	assert.Equal(t, before, other(), "the other pool was not written")

	r.delete(informers.YurtIngresses, "", "edge")
	r.eventually(func() (string, bool) { return "", r.get("edge") == nil }, "the object is gone")
	assert.Empty(t, r.owned(y.UID, ""), "nothing is left behind")
}

// TestDrift changes and deletes objects of each kind. The program repairs all of them.
func TestDrift(t *testing.T) {
	r := newRig(t)
	r.pools("hangzhou")
	r.deploy()
	r.start()
	y := r.create("edge", `{pools: [{name: hangzhou}]}`)
	r.await("edge", "hangzhou", conditionR, ready)
	r.settled("edge")
	objects := r.owned(y.UID, "")
	for _, k := range plan.Kinds() {
		for key, u := range objects {
			if u.GetKind() != k.Kind {
				continue
			}
			r.patchObject(k.Resource, u.GetNamespace(), u.GetName(), `{"metadata": {"labels": {"`+v1alpha1.LabelPool+`": "other", "app.kubernetes.io/name": null, "`+v1alpha1.LabelManagedBy+`": null}}}`)
			r.eventually(func() (string, bool) {
				got := r.owned(y.UID, "hangzhou")[key]
				return key, got != nil && assert.ObjectsAreEqual(u.GetLabels(), got.GetLabels())
			}, "labels of %s", key)
			r.delete(k.Resource, u.GetNamespace(), u.GetName())
			r.eventually(func() (string, bool) {
				got := r.owned(y.UID, "hangzhou")[key]
				return key, got != nil && got.GetUID() != u.GetUID()
			}, "%s is created again", key)
		}
	}
	assert.Len(t, r.owned(y.UID, ""), len(objects))

	d := r.deployment("hangzhou")
	r.patchObject(plan.Deployments, namespace, d.Name, `{"spec": {"replicas": 5, "template": {"spec": {"containers": [{"name": "own", "image": "evil"}], "nodeSelector": {"`+v1alpha1.LabelNodePool+`": "beijing"}}}}}`)
	r.eventually(func() (string, bool) {
		got := r.deployment("hangzhou")
		return fmt.Sprint(got.Spec), *got.Spec.Replicas == 1 && image(got) == image(d) && reflect.DeepEqual(got.Spec.Template.Spec.NodeSelector, d.Spec.Template.Spec.NodeSelector)
	}, "the Deployment is as it was")
	r.patch("edge", `{"status": null}`) // has no effect: the status is a subresource
	_, err := r.client.Resource(informers.YurtIngresses).Patch(t.Context(), "edge", "application/merge-patch+json", []byte(`{"status": {"readyNum": 7, "pools": null}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	r.eventually(func() (string, bool) {
		s := r.get("edge").Status
		return fmt.Sprint(s.ReadyNum), s.ReadyNum == 1 && len(s.Pools) == 1
	}, "the status is as it was")
	r.settled("edge")
}

// TestForeignObjects has objects of others under the names that pools need, and a user's own ingress-nginx. The program changes none of them.
func TestForeignObjects(t *testing.T) {
	r := newRig(t)
	r.pools("hangzhou", "nginx", "beijing")
	r.deploy()
	r.apply(`
{apiVersion: v1, kind: Namespace, metadata: {name: ingress-nginx, labels: {app.kubernetes.io/name: ingress-nginx}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: ingress-nginx, namespace: ingress-nginx}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: ingress-nginx-controller, namespace: ingress-nginx}, data: {a: b}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: ingress-nginx}, rules: []}
---
{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: nginx}, spec: {controller: k8s.io/ingress-nginx}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: forged, namespace: fairlead, labels: {fairlead.dev/managed-by: nodepool-ingress, fairlead.dev/pool: hangzhou}}, data: {a: b}}
`)
	names := []string{"namespace/ingress-nginx", "-n=ingress-nginx", "serviceaccount/ingress-nginx", "configmap/ingress-nginx-controller", "clusterrole/ingress-nginx", "ingressclass/nginx"}
	read := func() string {
		text, err := r.cluster.Kubectl(t.Context(), append([]string{"get", "-o", "json"}, names...)...)
		require.NoError(t, err)
		forged, err := r.cluster.Kubectl(t.Context(), "get", "-n", namespace, "-o", "json", "configmap/forged")
		require.NoError(t, err)
		return text + forged
	}
	before := read()
	r.start()
	y := r.create("edge", `{pools: [{name: nginx}, {name: hangzhou}, {name: beijing}]}`)
	r.await("edge", "hangzhou", conditionR, ready)
	r.await("edge", "nginx", v1alpha1.ConditionAccepted, "False NameConflict")
	assert.Empty(t, r.owned(y.UID, "nginx"), "nothing of a pool without its class is written")
	status := r.get("edge").Status
	require.Len(t, status.Conditions.UnreadyPools, 1)
	assert.Equal(t, v1alpha1.NotReadyFailure, status.Conditions.UnreadyPools[0].Info.Type)

	// An object of another kind with a name that a pool needs, in the way of a pool that exists.
	service := r.pool("edge", "beijing")
	require.NotNil(t, service)
	r.await("edge", "beijing", conditionR, ready)
	r.delete(informers.YurtIngresses, "", "edge")
	r.eventually(func() (string, bool) { return "", r.get("edge") == nil }, "the object is gone")
	assert.Equal(t, before, read(), "objects of others are as they were")

	r.delete(plan.IngressClasses, "", "nginx")
	y = r.create("edge", `{pools: [{name: nginx}]}`)
	r.await("edge", "nginx", conditionR, ready)
	assert.NotEmpty(t, r.owned(y.UID, "nginx"), "the class is free")
}
