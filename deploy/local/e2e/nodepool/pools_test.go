package nodepool_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/audit"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// pool is an entry of spec.pools.
func pool(name, further string) string {
	return fmt.Sprintf("  - {name: %s, exposure: {type: NodePort, httpPort: %d}%s}\n", name, ports[name], further)
}

// yurtIngress is a YurtIngress with pools, as entries of spec.pools.
func yurtIngress(name string, pools ...string) string {
	return "apiVersion: apps.openyurt.io/v1alpha1\nkind: YurtIngress\nmetadata: {name: " + name + "}\nspec:\n  pools:\n" + strings.Join(pools, "")
}

// foreign is an ingress-nginx of a user, with the names that OpenYurt's operator would use for its own.
const foreign = `
apiVersion: v1
kind: Namespace
metadata: {name: ingress-nginx, labels: {app.kubernetes.io/name: ingress-nginx, app.kubernetes.io/instance: ingress-nginx}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: ingress-nginx, namespace: ingress-nginx}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ingress-nginx-controller, namespace: ingress-nginx}
data: {mine: "true"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ingress-nginx}
rules: []
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: nginx}
spec: {controller: k8s.io/ingress-nginx}
`

// nodePool is the NodePool of a pool. The other pools are labels of nodes.
const nodePool = `
apiVersion: apps.openyurt.io/v1beta2
kind: NodePool
metadata: {name: beijing}
spec: {type: Edge}
`

// TestPools runs its parts in one cluster, one after the other.
func TestPools(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.apply(foreign)
	s.apply(s.file("nodepools.yaml"))
	s.kubectl("wait", "--for=condition=Established", stack.WaitTimeout, "crd/nodepools.apps.openyurt.io")
	s.apply(nodePool)
	before := s.foreignObjects()
	s.install("profiles.enabled={traefik,custom}", "profiles.customClusterRoles={"+traefikRole+"}",
		"exposures.allowed={NodePort,LoadBalancer,HostPort,HostNetwork,ClusterIP}", "exposures.loadBalancerClasses={example.com/edge}", "exposures.loadBalancerIPRanges={198.51.100.0/24}")
	s.parallel(
		func(s *system) { s.apply(s.example("yurtingress.yaml")) },
		func(s *system) { s.apply(s.example("hello.yaml")) },
	)
	s.awaitReady("edge")
	t.Run("Isolation", func(t *testing.T) { s.in(t).testIsolation() })
	t.Run("Settled", func(t *testing.T) { s.in(t).testSettled() })
	long := func(name string, test func(*system)) {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("long form: tests of package flow cover it against an API server")
			}
			test(s.in(t))
		})
	}
	long("OtherPools", (*system).testOtherPools)
	long("Exposures", (*system).testExposures)
	long("Custom", (*system).testCustom)
	t.Run("Removal", func(t *testing.T) { s.in(t).testRemoval() })
	assert.Equal(t, before, s.foreignObjects(), "the objects of another ingress controller")
	long("LeastPrivilege", (*system).testLeastPrivilege) // of all that the others do
}

// foreignObjects returns the versions of the objects of the user's ingress-nginx.
func (s *system) foreignObjects() string {
	s.t.Helper()
	const versions = `jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion}{"\n"}{end}`
	return s.kubectl("get", "serviceaccounts,configmaps", "ingress-nginx", "--namespace=ingress-nginx", "--ignore-not-found", "-o", versions) +
		s.kubectl("get", "ingressclass/nginx", "clusterrole/ingress-nginx", "namespace/ingress-nginx", "-o", versions)
}

// testIsolation checks that each pool serves the Ingresses of its class by its own pods, at its own nodes.
func (s *system) testIsolation() {
	s.apply(strings.ReplaceAll(strings.ReplaceAll(onlyHangzhou, "HOST", "only.hangzhou.example.com"), "CLASS", hangzhou))
	for _, pool := range []string{hangzhou, shanghai} {
		s.assertServes(pool, host, pool)
	}
	s.assertServes(hangzhou, "only.hangzhou.example.com", hangzhou)
	got, err := ask(s.t.Context(), s.client(s.entrance(shanghai, nodeOf(shanghai)), kubetest.Patience), "only.hangzhou.example.com")
	require.NoError(s.t, err)
	assert.Equal(s.t, answer{status: http.StatusNotFound}, got, "the class of another pool")
	if s.obeysTrafficPolicies() {
		for _, node := range []string{nodeOf(shanghai), "cloud"} {
			_, err := ask(s.t.Context(), s.client(s.entrance(hangzhou, node), attempt), host)
			assert.Error(s.t, err, "the port of a pool at node %s, which is not of the pool", node)
		}
	}
	for _, pool := range []string{hangzhou, shanghai} {
		nodes := s.kubectl("--namespace", namespace, "get", "pods", "-l", "app.kubernetes.io/instance=ingress-"+pool, "-o", "jsonpath={.items[*].spec.nodeName}")
		assert.Equal(s.t, nodeOf(pool), nodes)
	}
	defaults := s.kubectl("get", "ingressclasses", "-o", `jsonpath={.items[*].metadata.annotations.ingressclass\.kubernetes\.io/is-default-class}`)
	assert.Empty(s.t, defaults)
}

// obeysTrafficPolicies reports whether the nodes have a kube-proxy. The proxy of the embedded Kubernetes knows no traffic policies.
func (s *system) obeysTrafficPolicies() bool {
	s.t.Helper()
	status, err := s.Status(s.t.Context())
	require.NoError(s.t, err)
	if proxy := status.Nodes[0].ServiceProxy; proxy != clusterapi.ProxyKube {
		s.t.Logf("not checked with the service proxy %s: that nodes of other pools do not answer", proxy)
		return false
	}
	return true
}

// onlyHangzhou is an Ingress in one pool alone.
const onlyHangzhou = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: only-hangzhou}
spec:
  ingressClassName: CLASS
  rules: [{host: HOST, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: hello-hangzhou, port: {name: http}}}}]}}]
`

// idle is the time in which a settled operator must not write.
const idle = 5 * time.Second

// testSettled checks that the operator writes nothing when nothing changes, beside the controllers of Kubernetes, which write to its objects.
func (s *system) testSettled() {
	s.awaitReady("edge")
	since := time.Now()
	time.Sleep(idle) // no event marks that nothing happens
	for _, call := range audit.Calls(s.t, s.Cluster, audit.Program{Account: types.NamespacedName{Namespace: namespace, Name: operator}}, since) {
		assert.False(s.t, call.Writes() && call.Object.Resource != "leases", "%s %s", call.Permission(), call.Object.Name)
	}
}

// testOtherPools adds, changes, empties and removes pools, while clients send requests to a pool that does not change. None fails.
func (s *system) testOtherPools() {
	stop := s.startLoad(hangzhou, host, hangzhou)

	s.apply(yurtIngress("edge", pool(hangzhou, ""), pool(shanghai, ""), pool(beijing, "")))
	s.awaitReady("edge")
	s.apply(strings.ReplaceAll(hello(s.example("hello.yaml")), hangzhou, beijing))
	s.assertServes(beijing, host, beijing)

	s.apply(yurtIngress("edge", pool(hangzhou, ""), pool(shanghai, ", image: \"traefik:v3.7.9\", replicas: 2"), pool(beijing, "")))
	s.awaitReady("edge")
	s.assertServes(shanghai, host, shanghai)

	s.apply(yurtIngress("edge", pool(hangzhou, ""), pool(shanghai, ", replicas: 0"), pool(beijing, "")))
	s.awaitReady("edge")
	s.awaitPods(shanghai, 0)

	s.kubectl("label", "node", nodeOf(beijing), poolLabel+"-")
	s.kubectl("wait", "yurtingress/edge", `--for=jsonpath={.status.pools[?(@.name=="beijing")].nodes}=0`, stack.WaitTimeout)
	s.awaitCondition("edge", beijing, "Accepted", "True")
	s.kubectl("delete", "nodepool", beijing)
	s.awaitCondition("edge", beijing, "Accepted", "False")
	s.apply(yurtIngress("edge", pool(hangzhou, "")))
	s.awaitReady("edge")
	s.awaitObjects(beijing, 0)
	s.awaitObjects(shanghai, 0)

	stop()
}

// testExposures runs a pool in the network of its node, at ports of its node, and behind a load balancer, which the test plays. Each way in answers,
// and the one before no longer does.
func (s *system) testExposures() {
	const balancer = "198.51.100.7"
	expose := func(pool string) {
		s.apply("apiVersion: apps.openyurt.io/v1alpha1\nkind: YurtIngress\nmetadata: {name: ways}\nspec: {pools: [" + pool + "]}\n")
		s.awaitReady("ways")
	}
	answers := func(address string) {
		s.t.Helper()
		require.EventuallyWithT(s.t, func(c *assert.CollectT) {
			got, err := ask(s.t.Context(), s.client(address, attempt), host)
			require.NoError(c, err)
			require.Equal(c, answer{status: http.StatusOK, from: shanghai}, got)
		}, kubetest.Patience, tick, "%s", address)
	}
	pods := func(field, want string) { // once the pods of the way in before are gone
		s.t.Helper()
		require.EventuallyWithT(s.t, func(c *assert.CollectT) {
			got := s.kubectl("--namespace", namespace, "get", "pods", "-l", "app.kubernetes.io/instance=ingress-"+shanghai, "--field-selector=status.phase=Running", "-o", "jsonpath="+field)
			require.Equal(c, want, got)
		}, kubetest.Patience, tick, field)
	}
	node := s.address(nodeOf(shanghai))

	expose("{name: " + shanghai + ", exposure: {type: HostNetwork}}")
	answers(node + ":80")
	pods("{.items[*].spec.hostNetwork}", "true")

	expose("{name: " + shanghai + ", exposure: {type: HostPort, httpPort: 8080, httpsPort: 8443}}")
	pods("{.items[*].spec.containers[0].ports[*].hostPort}", "8080 8443") // the embedded container runtime does not map them
	pods("{.items[*].spec.hostNetwork}", "")
	answers("ingress-" + shanghai + "." + namespace + ":http")
	_, err := ask(s.t.Context(), s.client(node+":80", attempt), host)
	require.Error(s.t, err, "the port in the network of the node")

	expose("{name: " + shanghai + ", ingress_ips: [" + balancer + "], exposure: {type: LoadBalancer, loadBalancerClass: example.com/edge}}")
	pods("{.items[*].spec.containers[0].ports[*].hostPort}", "")
	s.kubectl("--namespace", namespace, "patch", "service", "ingress-"+shanghai, "--subresource=status", "--type=merge", "-p",
		`{"status": {"loadBalancer": {"ingress": [{"ip": "`+balancer+`"}]}}}`)
	s.kubectl("wait", "yurtingress/ways", "--for=jsonpath={.status.pools[0].addresses[0]}="+balancer, stack.WaitTimeout)
	s.kubectl("wait", "ingress/hello-"+shanghai, "--for=jsonpath={.status.loadBalancer.ingress[0].ip}="+balancer, stack.WaitTimeout)
	answers("ingress-" + shanghai + "." + namespace + ":http")
	s.kubectl("delete", "yurtingress", "ways", stack.WaitTimeout)
}

// hello returns the documents of the example that belong to hangzhou.
func hello(text string) string {
	var docs []string
	for _, d := range strings.Split(text, "---\n") {
		if strings.Contains(d, "name: hello-"+hangzhou) {
			docs = append(docs, d)
		}
	}
	return strings.Join(docs, "---\n")
}

// awaitPods waits until a pool has a number of pods with its ingress controller.
func (s *system) awaitPods(pool string, want int) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		out, err := s.Kubectl(s.t.Context(), "--namespace", namespace, "get", "pods", "-l", "app.kubernetes.io/instance=ingress-"+pool, "-o", "name")
		require.NoError(c, err)
		require.Len(c, strings.Fields(out), want)
	}, kubetest.Patience, tick)
}

// awaitCondition waits for the status of a condition of a pool.
func (s *system) awaitCondition(name, pool, kind, status string) {
	s.t.Helper()
	s.kubectl("wait", "yurtingress/"+name, stack.WaitTimeout,
		fmt.Sprintf(`--for=jsonpath={.status.pools[?(@.name=="%s")].conditions[?(@.type=="%s")].status}=%s`, pool, kind, status))
}

// poolKinds are the kinds of the objects of pools.
const poolKinds = "ingressclasses,clusterrolebindings,rolebindings,serviceaccounts,configmaps,services,poddisruptionbudgets,deployments,pods"

// awaitObjects waits until a pool has a number of objects.
func (s *system) awaitObjects(pool string, want int) {
	s.t.Helper()
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		out, err := s.Kubectl(s.t.Context(), "--namespace", namespace, "get", poolKinds, "-l", "app.kubernetes.io/instance=ingress-"+pool, "-o", "name")
		require.NoError(c, err)
		require.Len(c, strings.Fields(out), want, "%s", out)
	}, kubetest.Patience, tick)
}

const (
	cloud = "cloud" // a node, and a pool of it
	// traefikRole is the ClusterRole of the chart for Traefik.
	traefikRole = namespace + ":" + operator + ":traefik"
)

// customPool is a YurtIngress with a custom manifest.
const customPool = `
apiVersion: apps.openyurt.io/v1alpha1
kind: YurtIngress
metadata: {name: own}
spec:
  profile: custom
  customManifest: {configMap: custom-traefik}
  pools: [{name: cloud}]
`

// furtherDocuments are added to the manifest of the example, so that the pool has objects of all kinds.
const furtherDocuments = `
    ---
    apiVersion: v1
    kind: ConfigMap
    data: {pool: $(POOL)}
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "$(NAMESPACE):nodepool-ingress:traefik"}
`

// testCustom runs the manifest of the examples in a pool, and changes and deletes its objects: the operator restores them.
func (s *system) testCustom() {
	s.kubectl("label", "node", cloud, poolLabel+"="+cloud)
	s.apply(strings.TrimRight(s.example("custom-manifest.yaml"), "\n") + furtherDocuments)
	s.apply(customPool)
	s.awaitReady("own")
	s.apply(strings.NewReplacer("CLASS", cloud, "HOST", "cloud.example.com", "only-hangzhou", "only-cloud").Replace(onlyHangzhou))
	client := s.client("ingress-"+cloud+"."+namespace+":http", attempt)
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		got, err := ask(s.t.Context(), client, "cloud.example.com")
		require.NoError(c, err)
		require.Equal(c, answer{status: http.StatusOK, from: hangzhou}, got)
	}, kubetest.Patience, tick)

	for _, kind := range strings.Split(poolKinds, ",") {
		if kind != "pods" {
			s.assertRepaired(kind)
		}
	}
	s.awaitReady("own")
	s.kubectl("delete", "yurtingress", "own", stack.WaitTimeout)
}

// assertRepaired takes the label of the operator from an object of the custom pool, and waits for it; then it deletes the object, and waits
// for another one.
func (s *system) assertRepaired(kind string) {
	s.t.Helper()
	of := []string{"--namespace", namespace, "-l", "app.kubernetes.io/instance=ingress-" + cloud, "-o", "jsonpath={range .items[*]}{.metadata.uid} {.metadata.labels.fairlead\\.dev/managed-by}{end}"}
	before := s.kubectl(append([]string{"get", kind}, of...)...)
	require.Contains(s.t, before, operator, kind)
	restored := func(why string, restored func(now string) bool) {
		s.t.Helper()
		require.EventuallyWithT(s.t, func(c *assert.CollectT) {
			now, err := s.Kubectl(s.t.Context(), append([]string{"get", kind}, of...)...)
			require.NoError(c, err)
			require.True(c, restored(now), "%s: %s", kind, now)
		}, kubetest.Patience, tick, why)
	}
	s.kubectl("label", kind, "--namespace", namespace, "-l", "app.kubernetes.io/instance=ingress-"+cloud, "fairlead.dev/managed-by-")
	restored("without its label", func(now string) bool { return now == before })
	s.kubectl("delete", kind, "--namespace", namespace, "-l", "app.kubernetes.io/instance=ingress-"+cloud)
	restored("deleted", func(now string) bool { return now != before && strings.Contains(now, operator) })
}

// testRemoval deletes the YurtIngress: it is gone when nothing is left of its pools.
func (s *system) testRemoval() {
	s.kubectl("delete", "yurtingress", "edge", stack.WaitTimeout)
	out := s.kubectl("--namespace", namespace, "get", poolKinds, "-l", "app.kubernetes.io/name=nodepool-ingress-controller", "-o", "name")
	for _, left := range strings.Fields(out) {
		assert.True(s.t, strings.HasPrefix(left, "pod/"), "%s is left", left) // a pod ends after its Deployment
	}
}

// seldom are permissions that the test may not use, and why the chart grants them.
var seldom = map[string]string{
	"patch /events":                               "an Event that repeats within minutes raises the count of the one that exists",
	"get networking.k8s.io/ingressclasses":        "a class that another client has just created is read again: the cache has all classes, but not yet this one",
	"bind rbac.authorization.k8s.io/clusterroles": "no request has this verb: the API server asks for it when a binding is created",
}

// testLeastPrivilege compares the permissions that the chart grants to the operator and to a Traefik with their requests.
func (s *system) testLeastPrivilege() {
	instance := "app.kubernetes.io/instance=" + operator
	audit.AssertLeastPrivilege(s.t, s.Cluster, audit.LeastPrivilege{
		Program: audit.Program{Account: types.NamespacedName{Namespace: namespace, Name: operator}, Selector: instance + ",!app.kubernetes.io/component"},
		Seldom:  seldom,
	})
	audit.AssertLeastPrivilege(s.t, s.Cluster, audit.LeastPrivilege{ // the Traefik that had a load balancer, whose address it writes
		Program: audit.Program{Account: types.NamespacedName{Namespace: namespace, Name: "ingress-" + shanghai}, Selector: instance + ",app.kubernetes.io/component=traefik"},
	})
}
