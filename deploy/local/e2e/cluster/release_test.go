package cluster_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	// releaseVersion is that of the images which `make images-e2e` builds.
	releaseVersion = "v0.0.0-e2e"
	registryImage  = "distribution/distribution:e2e"
	registryPort   = 30500
)

// registryManifest is a registry; %s is its image, %d its port on the nodes.
const registryManifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: registry}
data:
  config.yml: |
    version: 0.1
    storage: {inmemory: {}}
    http: {addr: ":5000"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: registry}
spec:
  selector: {matchLabels: {app: registry}}
  template:
    metadata: {labels: {app: registry}}
    spec:
      automountServiceAccountToken: false
      containers:
      - name: registry
        image: %s
        args: [serve, /etc/distribution/config.yml]
        ports: [{name: http, containerPort: 5000}]
        readinessProbe: {httpGet: {path: /v2/, port: http}, periodSeconds: 1}
        volumeMounts: [{name: config, mountPath: /etc/distribution}]
      volumes: [{name: config, configMap: {name: registry}}]
---
apiVersion: v1
kind: Service
metadata: {name: registry}
spec:
  type: NodePort
  selector: {app: registry}
  ports: [{port: 5000, targetPort: http, nodePort: %d}]
`

// What is released is pushed to a registry, and installed from there in a cluster that has nothing else.
func TestRelease_IsInstalledFromARegistry(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, func(cfg *clusterapi.Config) {
		cfg.Images = t.TempDir()
		addImage(t, cfg.Images, registryImage, "registry", "--path", "/bin/registry", "--user", "")
		cfg.Publish = []clusterapi.Publish{{Host: "127.0.0.1:0", Target: "registry.default:5000"}}
	})
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(registryManifest, registryImage, registryPort)))
	_, err := c.Kubectl(t.Context(), "rollout", "status", "deployment/registry", "--timeout="+kubetest.Patience.String())
	require.NoError(t, err)
	pushed := push(t, c.Published[0]+"/fairlead")

	_, err = c.Kubectl(t.Context(), "create", "namespace", stack.OMENamespace)
	require.NoError(t, err)
	for _, manifest := range []string{ome.CRDs(ome.Release12), ome.Config(ome.Release12)} {
		require.NoError(t, c.Apply(t.Context(), manifest))
	}
	charts := "oci://" + c.Published[0] + "/fairlead/charts/"
	registry := registryOnNode(t, c) + "/fairlead"
	install := func(chart string, values ...string) {
		args := []string{"install", chart, charts + chart, "--version", strings.TrimPrefix(releaseVersion, "v"), "--plain-http",
			"--set", "image.registry=" + registry, "--set", "image.repository=" + chart}
		_, err := c.Helm(t.Context(), append(args, values...)...)
		require.NoError(t, err)
	}
	root, err := cluster.Repository()
	require.NoError(t, err)
	install("endpoint-picker", "--set", "endpoints.selector=app=vllm")
	install("ingress-reconciler", "--values", filepath.Join(root, stack.IngressExamples, "values.yaml"))
	for _, name := range []string{"endpoint-picker", "ingress-reconciler"} {
		_, err = c.Kubectl(t.Context(), "rollout", "status", "deployment/"+name, "--timeout="+kubetest.Patience.String())
		require.NoError(t, err)
		assert.Equal(t, []string{registry + "/" + name + "@" + pushed[name]}, imageIDs(t, c, name))
	}

	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(simplePod, "missing", registry+"/endpoint-picker:v9.9.9", "")))
	assert.Contains(t, failedPull(t, c, "missing"), "image not found: ")
}

// addImage makes an image of a program in bin, with flags of image build, and loads it into a store.
func addImage(t *testing.T, store, reference, program string, flags ...string) {
	t.Helper()
	root, err := cluster.Repository()
	require.NoError(t, err)
	bin, layout := filepath.Join(root, "bin"), filepath.Join(t.TempDir(), "layout")
	build := []string{"build", layout, "--name", program, "--binary", "linux/" + runtime.GOARCH + "=" + filepath.Join(bin, program), "--compress=false", "--attest=false"}
	run(t, root, filepath.Join(bin, "image"), append(build, flags...)...)
	run(t, root, filepath.Join(bin, "localkube"), "image", "load", "--store", store, layout, reference)
}

// push pushes and signs the release in a registry and returns the digests of the images by name.
func push(t *testing.T, registry string) map[string]string {
	t.Helper()
	root, err := cluster.Repository()
	require.NoError(t, err)
	out := run(t, root, "make", "--no-print-directory", "push", "REGISTRY="+registry, "VERSION="+releaseVersion, "COSIGN_PRIVATE_KEY="+signingKey(t),
		"OCI="+filepath.Join(root, "bin", "oci-e2e"), "RELEASE_IMAGES=endpoint-picker ingress-reconciler")
	digests := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(registry)+`/([a-z-]+):`+releaseVersion+`@(sha256:[0-9a-f]{64})$`).FindAllStringSubmatch(out, -1) {
		digests[m[1]] = m[2]
	}
	require.Len(t, digests, 2, out)
	assert.Len(t, regexp.MustCompile(`(?m)^Signed .*@sha256:[0-9a-f]{64}$`).FindAllString(out, -1), len(digests)+strings.Count(out, "Pushed: "), out)
	return digests
}

// signingKey returns the file of a new private key.
func signingKey(t *testing.T) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return file
}

// run runs a program in a folder, without the variables of a make that runs the tests, and returns its output.
func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); name != "MAKEFLAGS" && name != "MAKELEVEL" && name != "MFLAGS" {
			cmd.Env = append(cmd.Env, e)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s %s: %s%s", program, strings.Join(args, " "), &stdout, &stderr)
	return stdout.String()
}

// registryOnNode is the registry's address for nodes. They do not know the names of services, as on real clusters.
func registryOnNode(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	nodes, err := c.Clientset().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, a := range nodes.Items[0].Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return fmt.Sprintf("%s:%d", a.Address, registryPort)
		}
	}
	require.Fail(t, "the node has no address")
	return ""
}

// imageIDs are those of the containers of a release, each once.
func imageIDs(t *testing.T, c *cluster.Cluster, release string) []string {
	t.Helper()
	list, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + release})
	require.NoError(t, err)
	found := map[string]bool{}
	var ids []string
	for _, p := range list.Items {
		for _, s := range p.Status.ContainerStatuses {
			if !found[s.ImageID] {
				found[s.ImageID] = true
				ids = append(ids, s.ImageID)
			}
		}
	}
	return ids
}
