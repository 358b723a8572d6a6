//go:build system

package flow

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/nodepool-ingress/internal/config"
)

// commandLine matches a command of the page: its blocks are indented, further inside a list. Long commands have a backslash before each new
// line.
var commandLine = regexp.MustCompile(`(?m)^(?: {4}| {7})((?:kubectl|helm|[A-Z]+=\$\(kubectl|curl) .*)$`)

// section returns the commands of a section of the quick start.
func section(t *testing.T, title string) []string {
	t.Helper()
	_, text, found := strings.Cut(read(t, "../../../../docs/services/nodepool-ingress-quick-start.md"), "\n## "+title+"\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	var lines []string
	for _, match := range commandLine.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", ""), -1) {
		lines = append(lines, match[1])
	}
	return lines
}

// shell runs a line of commands in the root of the repository. Charts of the registry are those of the repository.
func (r *rig) shell(line string) string {
	r.t.Helper()
	binary, err := cluster.FindBinary()
	require.NoError(r.t, err)
	root, err := cluster.Repository()
	require.NoError(r.t, err)
	home := r.t.TempDir()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.t.Context()), 2*kubetest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -eu\nkubectl() { "+binary+" kubectl \"$@\"; }\n"+
		"helm() { "+binary+" helm \"${@/#oci:\\/\\/$REGISTRY\\//}\"; }\n"+line)
	cmd.Dir, cmd.WaitDelay = root, time.Second
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.cluster.Kubeconfig, "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
		"HELM_DATA_HOME="+home, "REGISTRY=registry.example.com/fairlead", "VERSION=v0.1.0")
	out, err := cmd.CombinedOutput()
	require.NoError(r.t, err, "%s\n%s", line, out)
	return string(out)
}

// TestQuickStart runs the commands of the quick start as they are, but for the requests to pools: pods do not run here. The program has
// the flags that the chart gives it.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i, name := range []string{"hz-1", "sh-1"} {
		_, err := r.kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		require.NoError(t, err)
		patch := `{"status": {"addresses": [{"type": "InternalIP", "address": ` +
			`"192.0.2.` + string(rune('1'+i)) + `"}], "conditions": [{"type": "Ready", "status": "True"}]}}`
		_, err = r.kube.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{},
			"status")
		require.NoError(t, err)
	}
	r.deploy()
	t.Cleanup(func() {
		r.shell("helm uninstall nodepool-ingress -n fairlead; kubectl delete -f deploy/examples/nodepool-ingress/hello.yaml -f " +
			"deploy/examples/nodepool-ingress/cache.yaml --ignore-not-found --wait=false")
	})
	ran := map[string]int{}
	variables := regexp.MustCompile(`^([A-Z]+)=`)
	for _, line := range append(section(t, "Two sites in five minutes"), section(t, "Pools that work alone")...) {
		program, _, _ := strings.Cut(line, " ")
		switch match := variables.FindStringSubmatch(line); {
		case match != nil:
			assert.Regexp(t, `^192\.0\.2\.[12]$`, strings.TrimSpace(r.shell(line+"\necho $"+match[1])))
			ran["variable"]++
			continue
		case program == "curl":
			assert.Regexp(t, `http://(\$HANGZHOU:30080|\$SHANGHAI:30081)/`, line)
			ran[program]++
			continue
		}
		r.shell(line)
		ran[program]++
		if program == "helm" {
			r.start(r.asInstalled)
		}
		if strings.Contains(line, "hello.yaml") {
			r.assertHello()
		}
	}
	assert.Equal(t, map[string]int{"kubectl": 8, "helm": 1, "variable": 2, "curl": 4}, ran)
	for pool, port := range map[string]int32{"hangzhou": 30080, "shanghai": 30081} {
		s, err := r.kube.CoreV1().Services(namespace).Get(t.Context(), "ingress-"+pool, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, port, s.Spec.Ports[0].NodePort)
		require.NotEmpty(t, r.deployment(pool).Spec.Template.Spec.InitContainers, "the cache of the second example")
	}
}

// asInstalled sets the flags of the Deployment that the chart has made.
func (r *rig) asInstalled(c *config.Config) {
	d, err := r.kube.AppsV1().Deployments(namespace).Get(r.t.Context(), "nodepool-ingress", metav1.GetOptions{})
	require.NoError(r.t, err)
	var args []string
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		if strings.HasPrefix(arg, "--leader-elect") {
			break
		}
		args = append(args, arg)
	}
	require.Greater(r.t, len(args), 3)
	fs := pflag.NewFlagSet("chart", pflag.ContinueOnError)
	c.Policy.AddFlags(fs)
	require.NoError(r.t, fs.Parse(args))
}

// assertHello checks that each Ingress of the example has the class of a pool, and a Service that selects pods on the nodes of the pool.
func (r *rig) assertHello() {
	r.t.Helper()
	ingresses, err := r.kube.NetworkingV1().Ingresses("default").List(r.t.Context(), metav1.ListOptions{})
	require.NoError(r.t, err)
	var pools []string
	for i := range ingresses.Items {
		in := &ingresses.Items[i]
		pool := *in.Spec.IngressClassName
		_, err := r.kube.NetworkingV1().IngressClasses().Get(r.t.Context(), pool, metav1.GetOptions{})
		require.NoError(r.t, err)
		backend := in.Spec.Rules[0].HTTP.Paths[0].Backend.Service
		s, err := r.kube.CoreV1().Services("default").Get(r.t.Context(), backend.Name, metav1.GetOptions{})
		require.NoError(r.t, err)
		assert.Equal(r.t, backend.Port.Name, s.Spec.Ports[0].Name)
		d, err := r.kube.AppsV1().Deployments("default").Get(r.t.Context(), backend.Name, metav1.GetOptions{})
		require.NoError(r.t, err)
		assert.Equal(r.t, s.Spec.Selector, d.Spec.Template.Labels)
		assert.Equal(r.t, pool, d.Spec.Template.Spec.NodeSelector["apps.openyurt.io/nodepool"])
		pools = append(pools, pool)
	}
	assert.ElementsMatch(r.t, []string{"hangzhou", "shanghai"}, pools)
}
