//go:build system

package flow

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	traefikapi "fairlead.dev/pkg/apis/traefik/v1alpha1"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/nodepool-ingress/internal/profile"
)

// controller is a real ingress controller with the arguments and the configuration of a profile.
type controller struct {
	*rig

	args   []string
	config map[string]string
	log    lockedBuffer
}

// lockedBuffer is the output of a process.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newController makes the IngressClass, the ConfigMap and the Service of a pool, and returns a controller that does not run yet.
func newController(t *testing.T, name string, customResources bool) *controller {
	t.Helper()
	c := &controller{rig: newRig(t)}
	built, problems := profile.Build(profile.Install{Namespace: namespace}, profile.Pool{
		Name: "hangzhou", LabelKey: v1alpha1.LabelNodePool, Class: "hangzhou", Profile: name, Replicas: 1, Nodes: 1,
		Exposure: v1alpha1.Exposure{Type: v1alpha1.ExposureClusterIP}, CustomResources: customResources,
	})
	require.Empty(t, problems)
	for _, o := range built.Objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			c.args = o.Spec.Template.Spec.Containers[0].Args
		case *corev1.ConfigMap, *corev1.Service, *corev1.ServiceAccount, *networkingv1.IngressClass:
			text, err := yaml.Marshal(o)
			require.NoError(t, err)
			c.apply(string(text))
			if m, ok := o.(*corev1.ConfigMap); ok {
				c.config = m.Data
			}
		}
	}
	c.apply("{apiVersion: v1, kind: Pod, metadata: {name: controller, namespace: " + namespace + ", labels: {app: controller}}, " +
		"spec: {serviceAccountName: ingress-hangzhou, containers: [{name: c, image: registry.example/c}]}}")
	c.apply("{apiVersion: v1, kind: Namespace, metadata: {name: tenant}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: victim}}")
	return c
}

func serviceManifest(ns, name, annotations string) string {
	return "{apiVersion: v1, kind: Service, metadata: {name: " + name + ", namespace: " + ns + ", annotations: {" + annotations +
		"}}, spec: {ports: [{name: http, port: 80}]}}"
}

// ingressManifest is an Ingress of the pool for a Service of its name, and the host of its name and .example.
func ingressManifest(ns, name, annotations string) string {
	return `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: ` + name + `, namespace: ` + ns + `, annotations: {` + annotations + `}}
spec:
  ingressClassName: hangzhou
  rules:
  - host: ` + name + `.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: ` + name + `, port: {number: 80}}}}]}`
}

// program returns the path of a program that make builds.
func program(t *testing.T, path, target string) string {
	t.Helper()
	root, err := cluster.Repository()
	require.NoError(t, err)
	path = filepath.Join(root, "bin", path)
	require.FileExists(t, path, "run `make "+target+"`")
	return path
}

// start runs the controller until the test ends.
func (c *controller) start(cmd *exec.Cmd) {
	c.t.Helper()
	cmd.Stdout, cmd.Stderr = &c.log, &c.log
	cmd.Env = append(slices.Clone(os.Environ()),
		append(cmd.Env, "KUBECONFIG="+c.cluster.Kubeconfig, "POD_NAME=controller", "POD_NAMESPACE="+namespace)...)
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(kubetest.Patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		if c.t.Failed() {
			c.t.Log(c.log.String())
		}
	})
}

// snippetKeys are annotations of HAProxy Ingress that take a snippet, and others whose value comes into the configuration.
var snippetKeys = []string{
	"config-backend", "config-backend-early", "config-backend-late", "config-defaults", "config-frontend", "config-frontend-early",
	"config-frontend-late",
	"config-global", "config-http-early", "config-http-late", "config-proxy", "config-sections", "config-tcp", "config-tcp-service",
	"config-stats",
	"app-root", "auth-realm", "auth-signin", "auth-url", "balance-algorithm", "cors-allow-headers", "cors-allow-origin", "headers",
	"health-check-uri",
	"hsts-max-age", "proxy-body-size", "redirect-to", "rewrite-target", "secure-sni", "server-alias", "server-redirect",
	"session-cookie-name",
	"session-cookie-keywords", "ssl-cipher-suites-backend", "ssl-options-backend", "timeout-server", "whitelist-source-range",
}

// TestHostileIngressOfHAProxyIngress gives the real controller snippets that would read its token (haproxy-ingress 0.13.18 and 0.14.9).
// None becomes a directive of HAProxy, and the Ingress of somebody else is served. A second line would become one, by balance-algorithm and
// others, also with snippets off: the policy of the chart refuses it.
func TestHostileIngressOfHAProxyIngress(t *testing.T) {
	t.Parallel()
	c := newController(t, v1alpha1.ProfileHAProxyIngress, false)
	binary := program(t, "haproxy/controller", "haproxy-ingress")
	home, root := t.TempDir(), t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(home, "rootfs"), os.DirFS(filepath.Join(filepath.Dir(binary), "rootfs"))))
	for _, script := range []string{"haproxy-reload.sh", "haproxy-shutdown.sh"} { // HAProxy itself would listen on fixed ports
		require.NoError(t, os.WriteFile(filepath.Join(home, "rootfs", script), []byte("#!/bin/sh\n"), 0o700))
		require.NoError(t, os.Chmod(filepath.Join(home, "rootfs", script), 0o700))
	}
	c.annotationPolicy()
	const directive = `http-request return status 200 content-type text/plain file /run/secrets/kubernetes".io"/serviceaccount/token`
	refuses := func(manifest string) bool {
		return strings.Contains(fmt.Sprint(c.cluster.Apply(t.Context(), manifest)), "must have one line")
	}
	for i, key := range snippetKeys { // each alone: some of them end the backend of others
		lines, line := fmt.Sprintf("haproxy-ingress.github.io/%s: %q", key,
			"x\n"+directive), fmt.Sprintf("haproxy-ingress.github.io/%s: %q", key, directive)
		if key == "headers" {
			line = lines
		} else {
			assert.True(t, refuses(ingressManifest("tenant", "second-line", lines)), key)
			assert.True(t, refuses(serviceManifest("tenant", "second-line", lines)), key)
		}
		for kind, annotations := range map[string][2]string{"ingress": {line, ""}, "service": {"", line}} {
			name := fmt.Sprintf("%s-%d", kind, i)
			c.apply(serviceManifest("tenant", name, annotations[1]))
			c.apply(ingressManifest("tenant", name, annotations[0]))
		}
	}
	assert.True(t, refuses(strings.Replace(ingressManifest("tenant", "second-line", ""), "path: /", `path: "/\nx"`, 1)))
	c.apply(serviceManifest("victim", "good", ""))
	c.apply(ingressManifest("victim", "good", ""))
	cmd := exec.CommandContext(t.Context(), binary, append(c.args, "--local-filesystem-prefix="+root, "--healthz-addr=127.0.0.1:0")...)
	cmd.Dir = home
	c.start(cmd)
	written := func(suffix string) string {
		var all strings.Builder
		_ = filepath.WalkDir(filepath.Join(root, "etc", "haproxy"), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, suffix) {
				raw, _ := os.ReadFile(path)
				all.Write(raw)
			}
			return nil
		})
		return all.String()
	}
	config := func() string { return written(".cfg") }
	require.Eventually(t, func() bool {
		return strings.Contains(config(), "backend victim_good_80") && strings.Contains(config(), "backend tenant_service-0_80") &&
			strings.Contains(config(), "backend tenant_ingress-0_80")
	}, kubetest.Patience, tick)
	for _, line := range strings.Split(config(), "\n") {
		assert.False(t, strings.HasPrefix(strings.TrimSpace(line), "http-request return status 200 content-type text/plain"), line)
	}
}

// hostileObjects are what a writer of Ingresses and of Traefik's kinds in one namespace can try: Services of others, the API of Traefik,
// addresses outside of the cluster, and rules in places for values.
const hostileObjects = `
{apiVersion: v1, kind: Service, metadata: {name: outside, namespace: tenant}, spec: {type: ExternalName, externalName: 127.0.0.1,
  ports: [{name: http, port: 80}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: outside, namespace: tenant}
spec:
  ingressClassName: hangzhou
  rules: [{host: outside.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: outside, port: {number: 80}}}}]}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: foreign-middleware, namespace: tenant,
  annotations: {traefik.ingress.kubernetes.io/router.middlewares: victim-auth@kubernetescrd}}
spec:
  ingressClassName: hangzhou
  rules: [{host: foreign-middleware.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web,
    port: {number: 80}}}}]}}]
---
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: {name: api, namespace: tenant}
spec: {ingressClassName: hangzhou, routes: [{kind: Rule, match: "Host(` + "`api.example`" + `)",
    services: [{kind: TraefikService, name: "api@internal"}]}]}
---
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: {name: foreign, namespace: tenant}
spec: {ingressClassName: hangzhou, routes: [{kind: Rule, match: "Host(` + "`foreign.example`" + `)",
    services: [{name: web, namespace: victim, port: 80}]}]}
---
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: {name: other, namespace: tenant}
spec: {ingressClassName: shanghai, routes: [{kind: Rule, match: "Host(` + "`other-class.example`" + `)",
    services: [{name: web, port: 80}]}]}
---
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: {name: own, namespace: tenant}
spec: {ingressClassName: hangzhou, routes: [{kind: Rule, match: "Host(` + "`own.example`" + `)", services: [{name: web, port: 80}]}]}
`

// TestHostileObjectsOfTraefik gives them to the real Traefik. It answers 503 for routes that it serves, as the Services have no pods, and
// 404 for all others. A file of the node and the metrics port are no answers.
func TestHostileObjectsOfTraefik(t *testing.T) {
	t.Parallel()
	c := newController(t, v1alpha1.ProfileTraefik, true)
	for _, definition := range traefikapi.Definitions() {
		c.define(definition)
	}
	c.apply("{apiVersion: traefik.io/v1alpha1, kind: Middleware, metadata: {name: auth, namespace: victim}, spec: {basicAuth: " +
		"{secret: users}}}")
	c.apply(hostileObjects)
	for ns, names := range map[string][]string{"tenant": {"web", "rule"}, "victim": {"web", "good"}} {
		for _, name := range names {
			c.apply(serviceManifest(ns, name, ""))
		}
	}
	c.apply(ingressManifest("tenant", "rule",
		"traefik.ingress.kubernetes.io/router.pathmatcher: 'Path(`/`) || Host(`good.example`) || Path'"))
	c.apply(ingressManifest("victim", "good", ""))
	dir := t.TempDir()
	for name, text := range c.config {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var args []string
	for _, arg := range c.args {
		args = append(args, strings.ReplaceAll(arg, "/etc/traefik", dir))
	}
	// Its listeners come from this process: no other one has their ports.
	names := []string{"traefik", "web", "websecure"}
	cmd := exec.CommandContext(t.Context(), "/bin/sh",
		append([]string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh", program(t, "traefik", "traefik")}, args...)...)
	cmd.Env = []string{"LISTEN_FDS=" + strconv.Itoa(len(names)), "LISTEN_FDNAMES=" + strings.Join(names, ":")}
	addresses := map[string]string{}
	for _, name := range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		file, err := l.(*net.TCPListener).File()
		require.NoError(t, err)
		t.Cleanup(func() { file.Close() })
		addresses[name], cmd.ExtraFiles = l.Addr().String(), append(cmd.ExtraFiles, file)
	}
	c.start(cmd)
	get := func(host string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addresses["web"]+"/", nil)
		require.NoError(t, err)
		r.Host = host
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, ""
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	for _, host := range []string{"good.example", "own.example"} {
		require.Eventually(t, func() bool {
			code, _ := get(host)
			return code == http.StatusServiceUnavailable
		}, kubetest.Patience, tick, host)
	}
	for _, host := range []string{
		"outside.example", "foreign-middleware.example", "api.example", "foreign.example", "other-class.example",
	} {
		code, body := get(host)
		assert.Equal(t, http.StatusNotFound, code, host)
		assert.Equal(t, "404 page not found\n", body, host)
	}
}
