package ingress_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/emulators/echo"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
)

// conformanceCases are the cases of the ingress-reconciler's evaluator.
const conformanceCases = "services/ingress-reconciler/internal/semantics/testdata/conformance"

// conformance is one file of them.
type conformance struct {
	Entrances []string      `json:"entrances"`
	Objects   string        `json:"objects"`
	Requests  []conformable `json:"requests"`
}

// conformable is a request, and what is expected: "backend path", or a status.
type conformable struct {
	Host   string            `json:"host"`
	Path   string            `json:"path"`
	Method string            `json:"method"`
	Header map[string]string `json:"header"`
	Want   string            `json:"want"`
}

// TestConformance asks Envoy Gateway and Traefik what the evaluator of the ingress-reconciler is asked by its own tests.
func TestConformance(t *testing.T) {
	c := cluster.Start(t, stack.PublishTraefik("127.0.0.1:0"), stack.PublishGateway("127.0.0.1:0"))
	g, gctx := errgroup.WithContext(t.Context())
	g.Go(func() error { return stack.InstallTraefik(gctx, c) })
	g.Go(func() error { return stack.InstallEcho(gctx, c, tag, server, other) })
	g.Go(func() error {
		if err := stack.InstallEnvoyGateway(gctx, c); err != nil {
			return err
		}
		if err := stack.ApplyExample(gctx, c, stack.IngressExamples, "gateway.yaml"); err != nil {
			return err
		}
		_, err := c.Kubectl(gctx, "-n", "gateways", "wait", "--for=condition=Programmed", "gateway/public", "--timeout=2m")
		return err
	})
	require.NoError(t, g.Wait())
	traefik, envoy := newWorld(c, c.Published[0]), newWorld(c, c.Published[1])
	planes := map[string]*world{"envoy": envoy, "traefik-gateway": traefik, "traefik-class": traefik, "nginx-class": traefik}

	root, err := cluster.Repository()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, conformanceCases, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var cases conformance
		require.NoError(t, yaml.UnmarshalStrict(text, &cases))
		require.NoError(t, c.Apply(t.Context(), cases.Objects))
		for _, name := range cases.Entrances {
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) { planes[name].conforms(t, cases.Requests) })
		}
	}
}

// conforms waits until every request is answered as expected: data planes take a moment to see all objects.
func (w *world) conforms(t *testing.T, requests []conformable) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		for _, r := range requests {
			got, err := w.answer(t, r)
			require.NoError(collect, err)
			assert.Equal(collect, r.Want, got, "%s %s%s %v", r.Method, r.Host, r.Path, r.Header)
		}
	}, settle, 10*tick)
}

// answer sends a request, and returns which server was reached with what path, or the status.
func (w *world) answer(t *testing.T, r conformable) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.Method, w.base+r.Path, nil)
	if err != nil {
		return "", err
	}
	req.Host = r.Host
	for name, value := range r.Header {
		req.Header.Set(name, value)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return strconv.Itoa(resp.StatusCode), nil
	}
	var answer echo.Answer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", err
	}
	return answer.Name + " " + reply{status: http.StatusOK, echo: answer}.String(), nil
}
