package ingress_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// conformanceCases are the cases of the ingress-reconciler's evaluator.
const conformanceCases = "services/ingress-reconciler/internal/semantics/testdata/conformance"

// conformance is a file of cases.
type conformance struct {
	Entrances []string          `json:"entrances"`
	Objects   string            `json:"objects"`
	Requests  []conformanceCase `json:"requests"`
}

// conformanceCase is a request, and the expected answer: "backend path", or a status.
type conformanceCase struct {
	Host   string            `json:"host"`
	Path   string            `json:"path"`
	Method string            `json:"method"`
	Header map[string]string `json:"header"`
	Want   string            `json:"want"`
}

// assertConformance sends the data planes of the system the requests that the tests of the evaluator pass to the evaluator.
func assertConformance(t *testing.T, s *system) {
	planes := map[string]*world{"envoy": s.envoy, "traefik-gateway": s.traefik, "traefik-class": s.traefik, "nginx-class": s.traefik}
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
		require.NoError(t, s.Apply(t.Context(), cases.Objects))
		for _, name := range cases.Entrances {
			require.Contains(t, planes, name)
			if planes[name] == nil { // the system has no Envoy Gateway
				continue
			}
			t.Run(filepath.Base(file)+" "+name, func(t *testing.T) {
				t.Parallel()
				planes[name].assertConforms(t, cases.Requests)
			})
		}
	}
}

// assertConforms waits until every request is answered as expected: data planes take a moment to see all objects.
func (w *world) assertConforms(t *testing.T, requests []conformanceCase) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		for _, r := range requests {
			got, err := w.try(t.Context(), question{method: r.Method, host: r.Host, target: r.Path, header: r.Header})
			require.NoError(collect, err)
			assert.Equal(collect, r.Want, got.withServer(), "%s %s%s %v", r.Method, r.Host, r.Path, r.Header)
		}
	}, kubetest.Patience, 10*tick)
}
