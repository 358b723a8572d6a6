package ingress_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
)

const upgradeHold = 4 * time.Second

// upgradeInterval is the interval of each of the eight loads during an upgrade: 50 requests a second together.
const upgradeInterval = 160 * time.Millisecond

// assertUpgrade upgrades the release of an earlier commit with helm, while services are used at each entrance, by hosts of their
// own and by paths of a shared host. The new release finds objects that it would name otherwise, and it must not replace them:
// the admission webhook of ingress-nginx would refuse a second Ingress of the same host and path.
func assertUpgrade(t *testing.T, s *system) {
	const namespace = "upgraded"
	s.namespace(t, namespace)
	var all []exposure
	overrides := map[types.NamespacedName]fields{}
	for _, shared := range []bool{false, true} {
		for _, e := range entrances {
			name := types.NamespacedName{Namespace: namespace, Name: e.name}
			if shared {
				name.Name += "-path"
			}
			all = append(all, exposure{name: name, roles: []string{"engine"}, entrance: e, shared: shared})
			overrides[name] = e.with(fields{"perISVCSubdomain": !shared})
		}
	}
	s.configure(t, baseConfiguration(upgradeHold), overrides)
	for _, e := range all {
		require.NoError(t, s.create(t.Context(), e.name, nil, fields{"engine": component()}))
	}
	before, loads := map[types.NamespacedName][]made{}, []*load{}
	for _, e := range all {
		s.awaitExposed(t, e.name, e.entrance.at)
		e.await(t, s, "")
		loads = append(loads, startUpgradeLoad(t, s, &e))
		objects, err := s.objects(t.Context(), e.name)
		require.NoError(t, err)
		require.NotEmpty(t, objects)
		before[e.name] = objects
	}
	oldVersion, oldPods := s.version(t), s.pods(t)

	require.NoError(t, upgrade(t.Context(), s.Cluster, stack.CurrentRelease(tag), s.configurationFlag(t)))
	s.awaitReplaced(t, oldPods)
	newVersion := s.version(t)
	assert.NotEqual(t, oldVersion, newVersion, "the program was not upgraded")
	t.Logf("upgraded from %s to %s", oldVersion, newVersion)
	s.settle(t)
	time.Sleep(upgradeHold) // of load, in which no request may fail: an object that was replaced would be deleted now
	s.settle(t)
	for _, e := range all {
		s.awaitExposed(t, e.name, e.entrance.at)
		after, err := s.objects(t.Context(), e.name)
		require.NoError(t, err)
		assert.ElementsMatch(t, uids(before[e.name]), uids(after), "%s: the upgrade replaced objects", e.name)
	}
	for _, l := range loads {
		l.finish(t)
	}
}

func startUpgradeLoad(t *testing.T, s *system, e *exposure) *load {
	t.Helper()
	q := e.request("")
	l := startLoadOf(t, &load{
		host: q.host, prefix: strings.TrimSuffix(q.target, completions), from: regexp.MustCompile("^" + e.name.Name + "-engine-"),
	}, upgradeInterval)
	l.switchTo(e.entrance.plane(s))
	return l
}

// install installs the release of the working tree with the values of its example, over whatever is installed.
func (s *system) install(t *testing.T) {
	t.Helper()
	old := s.pods(t)
	require.NoError(t, upgrade(t.Context(), s.Cluster, stack.CurrentRelease(tag)))
	if s.previous[old[0].Name] { // the subtest of the upgrade did not run
		s.awaitReplaced(t, old)
	}
}

// version returns the version that the program prints in a pod.
func (s *system) version(t *testing.T) string {
	t.Helper()
	text, err := s.runInPod(t, "--version")
	require.NoError(t, err)
	return strings.TrimSpace(text)
}

// pods returns the pods of the ingress-reconciler.
func (s *system) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := s.Clientset().CoreV1().Pods(stack.ReconcilerNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: reconcilerPod})
	require.NoError(t, err)
	require.NotEmpty(t, list.Items)
	return list.Items
}

// awaitReplaced waits until pods are deleted, and as many others run.
func (s *system) awaitReplaced(t *testing.T, old []corev1.Pod) {
	t.Helper()
	names := map[string]bool{}
	for i := range old {
		names[old[i].Name] = true
	}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		list, err := s.Clientset().CoreV1().Pods(stack.ReconcilerNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: reconcilerPod})
		require.NoError(collect, err)
		require.Len(collect, list.Items, len(old))
		for i := range list.Items {
			require.NotContains(collect, names, list.Items[i].Name)
		}
	}, kubetest.Patience, tick)
}

// settle waits until the ingress-reconciler has written nothing for two seconds.
func (s *system) settle(t *testing.T) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		require.Empty(collect, objectWrites(s.calls(t, time.Now().Add(-2*time.Second))))
	}, kubetest.Patience, tick)
}
