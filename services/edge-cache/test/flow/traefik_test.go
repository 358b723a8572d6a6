//go:build system

package flow

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/edge-cache/internal/config"
)

// traefikKinds are all kinds that Traefik lists at its start.
var traefikKinds = []string{
	"IngressRoute", "IngressRouteTCP", "IngressRouteUDP", "Middleware", "MiddlewareTCP", "ServersTransport", "ServersTransportTCP",
	"TLSOption", "TLSStore", "TraefikService",
}

// TestTraefikReadsMiddlewares runs the real Traefik behind a cache: an Ingress with a Middleware (traefik#11510), online and after a
// restart of the cache without the API server. The Middleware redirects, so no backend is needed.
func TestTraefikReadsMiddlewares(t *testing.T) {
	t.Parallel()
	root, err := cluster.Repository()
	require.NoError(t, err)
	program := filepath.Join(root, "bin", "traefik")
	require.FileExists(t, program, "run `make traefik`")
	w := newWorld(t)
	w.node("in-1", "edge")
	for _, kind := range traefikKinds {
		resource := w.define("traefik.io", "v1alpha1", strings.ToLower(kind)+"s", strings.ToLower(kind), kind, "Namespaced")
		if kind != "Middleware" {
			continue
		}
		_, err := resource.Namespace("default").Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "traefik.io/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "secure"},
			"spec": map[string]any{"redirectScheme": map[string]any{"scheme": "https", "port": "8443"}},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	class := "edge"
	_, err = w.direct.NetworkingV1().IngressClasses().Create(t.Context(), &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: networkingv1.IngressClassSpec{Controller: "traefik.io/ingress-controller"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.service("a", "traefik.ingress.kubernetes.io/router.middlewares", "")
	w.ingress("web", class, "")
	patch := `{"metadata": {"annotations": {"traefik.ingress.kubernetes.io/router.middlewares": "default-secure@kubernetescrd"}}}`
	_, err = w.direct.NetworkingV1().Ingresses("default").Patch(t.Context(), "web", "application/merge-patch+json", []byte(patch),
		metav1.PatchOptions{})
	require.NoError(t, err)
	e := w.edge("edge", func(c *config.Config) { c.Client.Profile = "traefik-crd" }).ready()

	e.requireRedirect(program)
	w.network.set(linkCut)
	e.restart()
	e.ready()
	e.requireRedirect(program)
}

// requireRedirect runs Traefik until it answers with the redirect of the Middleware.
func (e *edge) requireRedirect(program string) {
	e.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(e.t, err)
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	require.NoError(e.t, err)
	defer file.Close()
	args := []string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh", program, "--entryPoints.web.address=:8000", "--global.checkNewVersion=false"}
	for _, provider := range []string{"kubernetesIngress", "kubernetesCRD"} {
		args = append(args, "--providers."+provider+".ingressClass=edge", "--providers."+provider+".endpoint=https://"+e.address("client"),
			"--providers."+provider+".allowEmptyServices=true",
			"--providers."+provider+".token="+filepath.Join(e.cfg.Client.CredentialsDir, "token"),
			"--providers."+provider+".certAuthFilePath="+filepath.Join(e.cfg.Client.CredentialsDir, "ca.crt"))
	}
	ctx, cancel := context.WithCancel(e.t.Context())
	defer cancel()
	log, err := os.Create(filepath.Join(e.dir, "traefik.log"))
	require.NoError(e.t, err)
	defer log.Close()
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = kubetest.Patience
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{file}, log, log
	// The detector of this process would compare typed custom resources with their types: client-go drops these in a watch, and not in a
	// list.
	cmd.Env = append(os.Environ(), detector+"=false", "LISTEN_FDS=1", "LISTEN_FDNAMES=web")
	require.NoError(e.t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait()
		if raw, err := os.ReadFile(log.Name()); err == nil && e.t.Failed() {
			e.t.Log(string(raw))
		}
	}()
	client := &http.Client{
		Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	require.Eventually(e.t, func() bool {
		response, err := client.Get("http://" + l.Addr().String() + "/")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return strings.HasPrefix(response.Header.Get("Location"), "https://")
	}, kubetest.Patience, tick, "Traefik does not read the Middleware")
}
