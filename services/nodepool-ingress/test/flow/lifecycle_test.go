//go:build system

package flow

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/nodepool-ingress/internal/commands"
	"fairlead.dev/services/nodepool-ingress/internal/config"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

const (
	ready      = "True Ready"
	traefik    = "docker.io/library/traefik"
	conditionR = v1alpha1.ConditionReady
)

// TestTwoPools creates two pools, changes, empties and removes one of them, and deletes the object. The other pool is not written
// meanwhile.
func TestTwoPools(t *testing.T) {
	t.Parallel()
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
	_, err := r.cluster.Kubectl(t.Context(), "wait", "yurtingress/edge", "--timeout="+kubetest.Patience.String(),
		`--for=jsonpath={.status.pools[?(@.name=="hangzhou")].conditions[?(@.type=="Ready")].status}=True`)
	require.NoError(t, err, "the documented command")

	require.NoError(t, r.plan(), "plan finds no difference")
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
	r.eventually(func() (string, bool) {
		got := image(r.deployment("hangzhou"))
		return got, got == traefik+":v3.0.0"
	}, "the image changes")
	r.eventually(func() (string, bool) {
		got := r.pool("edge", "hangzhou").ReadyReplicas
		return fmt.Sprint(got), got == 2
	}, "two replicas are ready")
	r.await("edge", "hangzhou", conditionR, ready)

	require.ErrorIs(t, r.plan("--images=traefik=registry.example/traefik:v1"), dryrun.ErrDiffers)

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

// drift changes the content of an object of each kind, as an administrator or another tenant would.
var drift = map[string]string{
	"IngressClass":       `{"metadata": {"annotations": {"fairlead.dev/applied": null}}}`, // its controller cannot change
	"ServiceAccount":     `{"automountServiceAccountToken": true}`,
	"ConfigMap":          `{"data": {"allow-snippet-annotations": "true", "KUBERNETES_SERVICE_HOST": "192.0.2.1", "own": "x"}}`,
	"ClusterRoleBinding": `{"subjects": [{"kind": "ServiceAccount", "name": "other", "namespace": "default"}]}`,
	"RoleBinding":        `{"subjects": []}`,
	"Service": `{"spec": {"selector": {"app": "own"}, "externalTrafficPolicy": "Cluster", "ports": [{"name": "http", ` +
		`"port": 81}]}}`,
	"PodDisruptionBudget": `{"spec": {"maxUnavailable": 0}}`,
	"Deployment": `{"spec": {"replicas": 5, "template": {"spec": {"containers": [{"name": "own", "image": "evil"}], ` +
		`"nodeSelector": {"apps.openyurt.io/nodepool": "beijing"}}}}}`,
}

// content returns what an object says, without what the API server adds at each write. Entries of maps that others add stay, so only what
// was there before counts.
func content(u *unstructured.Unstructured) map[string]any {
	c := u.DeepCopy().Object
	delete(c, "metadata")
	delete(c, "status")
	if spec, found := c["spec"].(map[string]any); found {
		delete(spec, "healthCheckNodePort")
		ports, _ := spec["ports"].([]any)
		for i := range ports {
			delete(ports[i].(map[string]any), "nodePort")
		}
	}
	return c
}

// TestDrift changes the labels and the content of the objects of all kinds, and deletes them. The program repairs all of them.
func TestDrift(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("hangzhou")
	r.deploy()
	r.start(func(c *config.Config) { c.Policy.Install.CacheImage = "registry.example/edge-cache:v1" })
	// a profile with objects of all kinds
	y := r.create("edge", `{profile: haproxy-ingress, cacheSidecar: {enabled: true}, pools: [{name: hangzhou}]}`)
	r.await("edge", "hangzhou", conditionR, ready)
	r.settled("edge")
	objects := r.owned(y.UID, "")
	for _, k := range plan.Kinds() {
		found := false
		for key, u := range objects {
			if u.GetKind() != k.Kind {
				continue
			}
			found = true
			r.patchObject(k.Resource, u.GetNamespace(), u.GetName(),
				`{"metadata": {"labels": {"`+v1alpha1.LabelPool+`": "other", "app.kubernetes.io/name": null, "`+v1alpha1.LabelManagedBy+
					`": null}}}`)
			r.eventually(func() (string, bool) {
				got := r.owned(y.UID, "hangzhou")[key]
				return key, got != nil && assert.ObjectsAreEqual(u.GetLabels(), got.GetLabels())
			}, "labels of %s", key)
			r.patchObject(k.Resource, u.GetNamespace(), u.GetName(), drift[k.Kind])
			r.eventually(func() (string, bool) {
				got := r.owned(y.UID, "hangzhou")[key]
				return fmt.Sprint(got), got != nil && covered(content(got), content(u))
			}, "content of %s", key)
			r.delete(k.Resource, u.GetNamespace(), u.GetName())
			r.eventually(func() (string, bool) {
				got := r.owned(y.UID, "hangzhou")[key]
				return key, got != nil && got.GetUID() != u.GetUID()
			}, "%s is created again", key)
		}
		assert.True(t, found, "an object of kind %s", k.Kind)
	}
	assert.Len(t, r.owned(y.UID, ""), len(objects))

	// Objects that say that they are of the YurtIngress, of a pool that it does not list, or of none.
	for _, pool := range []string{`"fairlead.dev/pool": "ghost", `, ""} {
		r.apply(`{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": {"name": "stray", "namespace": "fairlead", "labels": {` + pool + `"fairlead.dev/managed-by": "nodepool-ingress"},
			"ownerReferences": [{"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtIngress", "name": "edge",
			"uid": "` + string(y.UID) + `", "controller": true}]},
			"spec": {"selector": {"matchLabels": {"a": "b"}},
			"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}`)
		r.eventually(func() (string, bool) {
			_, err := r.kube.AppsV1().Deployments(namespace).Get(t.Context(), "stray", metav1.GetOptions{})
			return fmt.Sprint(err), apierrors.IsNotFound(err)
		}, "the stray Deployment is deleted: %s", pool)
		r.await("edge", "hangzhou", conditionR, ready)
	}
	r.patch("edge", `{"status": null}`) // has no effect: the status is a subresource
	_, err := r.client.Resource(informers.YurtIngresses).Patch(t.Context(), "edge", "application/merge-patch+json",
		[]byte(`{"status": {"readyNum": 7, "pools": null}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	r.eventually(func() (string, bool) {
		s := r.get("edge").Status
		return fmt.Sprint(s.ReadyNum), s.ReadyNum == 1 && len(s.Pools) == 1
	}, "the status is as it was")
	r.settled("edge")
}

// covered reports whether a value has all that another one has. Lists must be equal.
func covered(live, wanted any) bool {
	a, isMap := wanted.(map[string]any)
	b, both := live.(map[string]any)
	if !isMap || !both {
		return reflect.DeepEqual(live, wanted)
	}
	for key := range a {
		if !covered(b[key], a[key]) {
			return false
		}
	}
	return true
}

// TestForeignObjects has objects of others under the names that pools need, and a user's own ingress-nginx. The program changes none of
// them.
func TestForeignObjects(t *testing.T) {
	t.Parallel()
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
{apiVersion: v1, kind: ConfigMap, metadata: {name: forged, namespace: fairlead, labels: {fairlead.dev/managed-by: nodepool-ingress,
  fairlead.dev/pool: hangzhou}}, data: {a: b}}
`)
	names := []string{
		"namespace/ingress-nginx", "-n=ingress-nginx", "serviceaccount/ingress-nginx", "configmap/ingress-nginx-controller",
		"clusterrole/ingress-nginx", "ingressclass/nginx",
	}
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
	r.await("edge", "beijing", conditionR, ready)
	r.await("edge", "nginx", v1alpha1.ConditionAccepted, "False NameConflict")
	assert.Empty(t, r.owned(y.UID, "nginx"), "nothing of a pool without its class is written")
	status := r.get("edge").Status
	require.Len(t, status.Conditions.UnreadyPools, 1)
	assert.Equal(t, v1alpha1.NotReadyFailure, status.Conditions.UnreadyPools[0].Info.Type)

	r.delete(informers.YurtIngresses, "", "edge")
	r.eventually(func() (string, bool) { return "", r.get("edge") == nil }, "the object is gone")
	assert.Equal(t, before, read(), "objects of others are as they were")

	r.delete(plan.IngressClasses, "", "nginx")
	y = r.create("edge", `{pools: [{name: nginx}]}`)
	r.await("edge", "nginx", conditionR, ready)
	assert.NotEmpty(t, r.owned(y.UID, "nginx"), "the class is free")
}

// TestForeignNames has an object of another owner under each name that a pool needs. The program tells which, neither changes nor deletes
// it, and goes on when it is gone.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("hangzhou", "beijing")
	r.deploy()
	r.start()
	y := r.create("edge", `{profile: ingress-nginx, pools: [{name: hangzhou}, {name: beijing}]}`)
	r.await("edge", "hangzhou", conditionR, ready)
	objects := r.owned(y.UID, "hangzhou")
	for _, k := range plan.Kinds() {
		if k.Resource == plan.IngressClasses {
			continue // TestForeignObjects
		}
		for key, u := range objects {
			if u.GetKind() != k.Kind {
				continue
			}
			foreign := u.DeepCopy()
			foreign.SetOwnerReferences(nil)
			for _, field := range []string{"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"} {
				unstructured.RemoveNestedField(foreign.Object, "metadata", field)
			}
			delete(foreign.Object, "status")
			// labels prove nothing
			foreign.SetLabels(map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.Manager, v1alpha1.LabelPool: "hangzhou", v1alpha1.LabelOwner: string(y.UID),
			})
			r.replaceByForeign(k.Resource, u, foreign)
			r.await("edge", "hangzhou", v1alpha1.ConditionProgrammed, "False NameConflict")
			before, err := r.client.Resource(k.Resource).Namespace(u.GetNamespace()).Get(t.Context(), u.GetName(), metav1.GetOptions{})
			require.NoError(t, err)
			for _, c := range r.pool("edge", "hangzhou").Conditions {
				if c.Type == v1alpha1.ConditionProgrammed {
					assert.Contains(t, c.Message, k.Kind+" "+u.GetName())
				}
			}
			r.patch("edge", `{"spec": {"pools": [{"name": "beijing"}]}}`) // the pool goes, and the object stays
			r.eventually(func() (string, bool) {
				left := r.owned(y.UID, "hangzhou")
				return fmt.Sprint(left), len(left) == 0
			}, "the pool is removed")
			after, err := r.client.Resource(k.Resource).Namespace(u.GetNamespace()).Get(t.Context(), u.GetName(), metav1.GetOptions{})
			require.NoError(t, err, key)
			assert.Equal(t, before.GetUID(), after.GetUID(), key)
			assert.Equal(t, content(before), content(after), key)
			r.delete(k.Resource, u.GetNamespace(), u.GetName())
			r.patch("edge", `{"spec": {"pools": [{"name": "hangzhou"}, {"name": "beijing"}]}}`)
			r.await("edge", "hangzhou", conditionR, ready)
		}
	}
}

// replaceByForeign deletes an object, and creates that of another owner before the program notices: it does so again until it has won.
func (r *rig) replaceByForeign(resource schema.GroupVersionResource, u, foreign *unstructured.Unstructured) {
	r.t.Helper()
	client := r.client.Resource(resource).Namespace(u.GetNamespace())
	r.eventually(func() (string, bool) {
		if err := client.Delete(r.t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err.Error(), false
		}
		_, err := client.Create(r.t.Context(), foreign, metav1.CreateOptions{})
		return fmt.Sprint(err), err == nil
	}, "%s of another owner", u.GetName())
}

// TestDeletedTogether deletes two objects at the same time, and while a third one has the same profile. Neither thinks that it is the last
// one: they have nothing in common.
func TestDeletedTogether(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("a", "b", "c")
	r.deploy()
	r.start()
	for _, name := range []string{"a", "b", "c"} {
		r.create(name, "{pools: [{name: "+name+"}]}")
	}
	for _, name := range []string{"a", "b", "c"} {
		r.await(name, name, conditionR, ready)
	}
	r.settled("c")
	before := r.versions("c")
	each(t, 2, func(i int) error {
		return r.client.Resource(informers.YurtIngresses).Delete(t.Context(), []string{"a", "b"}[i], metav1.DeleteOptions{})
	})
	r.eventually(func() (string, bool) { return "", r.get("a") == nil && r.get("b") == nil }, "both are gone")
	for _, k := range plan.Kinds() {
		for _, name := range r.managed(k.Resource) {
			assert.True(t, strings.HasSuffix(name, "c"), "%s %s is left", k.Kind, name)
		}
	}
	assert.Equal(t, before, r.versions("c"), "the third one is not written")
}

// plan runs the subcommand plan.
func (r *rig) plan(args ...string) error {
	var out, log bytes.Buffer
	cmd := commands.New(&out, &log)
	cmd.SetArgs(append([]string{"plan", "--namespace=" + namespace, "--kubeconfig=" + r.cluster.Kubeconfig}, args...))
	return cmd.ExecuteContext(r.t.Context())
}

// TestRefusedObjects has an API server that refuses the Service of one pool, and a webhook that changes Deployments. Other pools go on.
func TestRefusedObjects(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("a", "b", "c")
	r.deploy()
	r.start(func(c *config.Config) { c.Policy.BalancerClasses = []string{"example.com/x", "example.com/y"} })
	r.create("edge",
		`{pools: [{name: a, exposure: {type: NodePort, httpPort: 30080, httpsPort: 30443}}, {name: b, exposure: {type: NodePort, `+
			`httpPort: 30080}}, {name: c, exposure: {type: NodePort, httpPort: 1}}]}`)
	r.await("edge", "a", conditionR, ready)
	r.await("edge", "b", conditionR, "False NotWritten")
	r.await("edge", "c", conditionR, "False NotWritten")
	r.patch("edge",
		`{"spec": {"pools": [{"name": "a", "exposure": {"type": "ClusterIP"}}, {"name": "b", "exposure": {"type": "NodePort", "httpPort": `+
			`30080}}, {"name": "c", "exposure": {"type": "LoadBalancer", "loadBalancerClass": "example.com/x"}}]}}`)
	r.await("edge", "a", conditionR, ready)
	r.await("edge", "b", conditionR, ready)
	r.await("edge", "c", conditionR, ready)

	// Fields that cannot change: the objects are created again.
	class, err := r.kube.NetworkingV1().IngressClasses().Get(t.Context(), "c", metav1.GetOptions{})
	require.NoError(t, err)
	r.patch("edge",
		`{"spec": {"profile": "haproxytech", "pools": [{"name": "c", "exposure": {"type": "LoadBalancer", "loadBalancerClass": `+
			`"example.com/y"}}]}}`)
	r.eventually(func() (string, bool) {
		got, err := r.kube.NetworkingV1().IngressClasses().Get(t.Context(), "c", metav1.GetOptions{})
		return fmt.Sprint(err), err == nil && got.Spec.Controller != class.Spec.Controller
	}, "the class has the other controller")
	r.await("edge", "c", conditionR, ready)
	r.settled("edge")
	r.eventually(func() (string, bool) {
		left := r.managed(plan.IngressClasses)
		return fmt.Sprint(left), len(left) == 1
	}, "the other pools are gone")
}

// TestOtherLabels uses another label of nodes, two names of one field that differ, and a custom manifest.
func TestOtherLabels(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.node("n", "topology.kubernetes.io/zone", "zone-1")
	r.deploy()
	r.start(func(c *config.Config) { c.Policy.LabelKeys = append(c.Policy.LabelKeys, "topology.kubernetes.io/zone") })
	y := r.create("edge", `{poolLabelKey: topology.kubernetes.io/zone, pools: [{name: zone-1}]}`)
	r.await("edge", "zone-1", conditionR, ready)
	assert.Equal(t, "zone-1", r.deployment("zone-1").Spec.Template.Spec.NodeSelector["topology.kubernetes.io/zone"])

	r.patch("edge", `{"spec": {"ingress_controller_replicas_per_pool": 2, "ingressControllerReplicasPerPool": 3}}`)
	r.await("edge", "zone-1", v1alpha1.ConditionAccepted, "False FieldConflict")
	assert.Equal(t, int32(1), *r.deployment("zone-1").Spec.Replicas, "the pool stays as it is")
	r.patch("edge", `{"spec": {"ingress_controller_replicas_per_pool": null}}`)
	r.eventually(func() (string, bool) { d := r.deployment("zone-1"); return "", *d.Spec.Replicas == 3 }, "the other name counts")
	r.await("edge", "zone-1", conditionR, ready)

	r.patch("edge", `{"spec": {"poolLabelKey": "kubernetes.io/hostname"}}`)
	r.await("edge", "zone-1", v1alpha1.ConditionAccepted, "False NotAllowed")
	r.patch("edge",
		`{"spec": {"poolLabelKey": "topology.kubernetes.io/zone", "profile": "custom", "customManifest": {"configMap": "mine"}}}`)
	r.await("edge", "zone-1", v1alpha1.ConditionAccepted, "False InvalidManifest")
	r.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: mine, namespace: default, labels: {fairlead.dev/custom-manifest: ` +
		`"true"}}, data: {manifest.yaml: "{}"}}`)
	r.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: mine, namespace: fairlead}, data: {manifest.yaml: "{}"}}`)
	time.Sleep(quiet)
	assert.Contains(t, r.condition("edge", "zone-1", v1alpha1.ConditionAccepted), "InvalidManifest",
		"neither has the namespace and the label")
	for _, c := range r.pool("edge", "zone-1").Conditions {
		assert.Contains(t, c.Message, "does not exist")
	}
	assert.NotEmpty(t, r.owned(y.UID, "zone-1"))

	r.patch("edge", `{"spec": {"profile": null, "customManifest": null}}`)
	r.await("edge", "zone-1", conditionR, ready)
	require.NoError(t, r.kube.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}))
	r.await("edge", "zone-1", v1alpha1.ConditionAccepted, "False PoolNotFound")
	assert.NotEmpty(t, r.owned(y.UID, "zone-1"), "an empty list deletes nothing")
}
