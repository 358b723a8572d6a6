package nodepool_test

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

//go:embed testdata
var testdata embed.FS

const migration = "docs/operations/migrate-from-yurtingress.md"

// legacyIngress has the class of a pool in the annotation that OpenYurt's documents recommend.
const legacyIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: legacy, annotations: {kubernetes.io/ingress.class: hangzhou}}
spec:
  rules: [{host: legacy.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: hello-hangzhou, port: {name: http}}}}]}}]
`

// TestMigration runs the commands of the guide in a cluster with what OpenYurt's operator leaves behind. The YurtIngress keeps its pools, and
// its Ingresses are served; then it can be deleted.
func TestMigration(t *testing.T) {
	if testing.Short() {
		t.Skip("long form: the commands of a guide")
	}
	t.Parallel()
	s := newSystem(t)
	s.apply(hello(s.example("hello.yaml")))
	s.apply(legacyIngress)
	s.apply(strings.ReplaceAll(s.file("openyurt.yaml"), "IMAGE", stack.Registry()+"/echo:"+tag))
	s.kubectl("wait", "--for=condition=Established", stack.WaitTimeout, "crd/yurtingresses.apps.openyurt.io")
	s.apply(s.file("openyurt-objects.yaml"))
	_, err := s.Kubectl(t.Context(), "annotate", "yurtingress", "yurtingress-hangzhou", "a=b")
	require.ErrorContains(t, err, "failed calling webhook", "the webhooks stop every write")

	for _, block := range s.commands() {
		t.Log(block)
		s.run(block)
	}

	client := s.client("ingress-hangzhou."+namespace+":http", attempt)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got, err := ask(t.Context(), client, "legacy.example.com")
		require.NoError(c, err)
		require.Equal(c, answer{status: 200, from: hangzhou}, got)
	}, kubetest.Patience, tick)
	assert.Equal(t, "1", s.kubectl("get", "yurtingress", "yurtingress-hangzhou", "-o", "jsonpath={.status.readyNum}"))
	assert.Empty(t, s.kubectl("get", "namespace", "ingress-nginx", "--ignore-not-found", "-o", "name"))
	s.apply(strings.ReplaceAll(legacyIngress, "name: legacy", "name: later")) // no webhook of a pool is left
	s.kubectl("delete", "yurtingress", "yurtingress-hangzhou", stack.WaitTimeout)
	s.awaitObjects(hangzhou, 0)
}

func (s *system) file(name string) string {
	s.t.Helper()
	raw, err := testdata.ReadFile("testdata/" + name)
	require.NoError(s.t, err)
	return string(raw)
}

// commands returns the blocks of commands of the guide.
func (s *system) commands() []string {
	s.t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.root, migration))
	require.NoError(s.t, err)
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(raw), -1) {
		blocks = append(blocks, match[1])
	}
	require.GreaterOrEqual(s.t, len(blocks), 5)
	return blocks
}

// run runs commands in the root of the repository, with the programs of the embedded Kubernetes, the charts of the repository and the images of
// the tests.
func (s *system) run(block string) {
	s.t.Helper()
	binary, err := cluster.FindBinary()
	require.NoError(s.t, err)
	values := fmt.Sprintf("--set image.repository=%s --set image.tag=%s --set resources.limits.memory=1Gi", operator, tag)
	block = strings.ReplaceAll(block, "--set image.repository="+operator, values)
	script := fmt.Sprintf("set -eu -o pipefail\nkubectl() { %[1]q kubectl \"$@\"; }\nhelm() { %[1]q helm \"${@/#oci:\\/\\/$REGISTRY\\//}\"; }\n%[2]s", binary, block)
	cmd := exec.CommandContext(s.t.Context(), "bash", "-c", script)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "REGISTRY="+stack.Registry(), "VERSION=v0.1.0")
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s\n%s", block, out)
}
