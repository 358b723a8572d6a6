package ingress_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
)

// explanation is the output of `plan --request`.
type explanation struct {
	Object struct {
		Kind, Namespace, Name string
	} `json:"object"`
	Backend struct {
		Kind, Namespace, Name string
		Port                  int
	} `json:"backend"`
	Path  string `json:"path"`
	Error string `json:"error"`
}

// explanationArgs returns the arguments that explain a request at an entrance.
func explanationArgs(e entrance, q question) []string {
	args := []string{"plan", "--request", "GET", "http://" + q.host + q.target, "--entrance", e.object, "-o", "json"}
	for name, value := range q.header {
		args = append(args, "-H", name+": "+value)
	}
	return args
}

// explain asks the program which backend answers a request. The exit code may say that no backend does.
func (s *system) explain(t *testing.T, e entrance, q question) explanation {
	t.Helper()
	root, err := cluster.Repository()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "bin", stack.Reconciler), append(explanationArgs(e, q), "--kubeconfig", s.Kubeconfig)...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || len(out) == 0) {
		require.NoError(t, err, "%s", stderr(exit))
	}
	var explained explanation
	require.NoError(t, json.Unmarshal(out, &explained), "%s", out)
	return explained
}

func stderr(err *exec.ExitError) string {
	if err == nil {
		return ""
	}
	return string(err.Stderr)
}

// assertExplained sends requests through the data planes, and compares the backends and paths with those that the program explains.
func assertExplained(t *testing.T, s *system, all []exposure) {
	answered, refused := 0, 0
	for _, e := range all {
		for _, q := range e.explainable() {
			want := s.explain(t, e.entrance, q)
			got, err := e.entrance.plane(s).ask(t.Context(), q)
			require.NoError(t, err)
			text := fmt.Sprintf("%s: %s%s %v: explained as %+v", e.name, q.host, q.target, q.header, want)
			if want.Error != "" {
				assert.NotEqual(t, 200, got.status, text)
				refused++
				continue
			}
			assert.Equal(t, want.Path, got.String(), text)
			assert.Equal(t, "Service", want.Backend.Kind, text)
			assert.True(t, strings.HasPrefix(got.echo.Name, want.Backend.Name+"-"), "%s: answered by %s", text, got.echo.Name)
			answered++
		}
	}
	t.Logf("%d requests that a backend answers, and %d others", answered, refused)
	first := all[0].explainable()[0] // the roles of the chart allow it in the pod, too
	out, err := s.runInPod(t, explanationArgs(all[0].entrance, first)...)
	require.NoError(t, err)
	var explained explanation
	require.NoError(t, json.Unmarshal([]byte(out), &explained), "%s", out)
	assert.Equal(t, s.explain(t, all[0].entrance, first), explained)
}

// runInPod runs the program in one of its pods.
func (s *system) runInPod(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	return s.Kubectl(t.Context(), append([]string{"-n", stack.ReconcilerNamespace, "exec", "deployment/" + stack.Reconciler, "--", "/" + stack.Reconciler}, args...)...)
}

// explainable returns requests whose answers depend on paths, hosts and headers.
func (e *exposure) explainable() []question {
	entry := e.request("")
	base := strings.TrimSuffix(entry.target, completions)
	var all []question
	for _, target := range []string{completions, "/", "", "x", "/v1/models?limit=1"} {
		all = append(all, question{host: entry.host, target: base + target})
	}
	for _, role := range e.roles {
		q := e.request(role)
		all = append(all, question{host: q.host, target: q.target})
	}
	all = append(all,
		question{host: "unknown." + entry.host, target: entry.target},
		question{host: entry.host, target: "/unknown" + completions},
	)
	if e.model {
		header := map[string]string{modelHeader: e.name.Name}
		all = append(all,
			question{host: entry.host, target: completions, header: header},
			question{host: entry.host, target: completions, header: map[string]string{modelHeader: "unknown"}},
			question{host: entry.host, target: e.request(e.roles[1]).target, header: header}, // a longer path, of another component
		)
	}
	for i := range all {
		if !strings.HasPrefix(all[i].target, "/") { // the base is empty where the service has a host to itself
			all[i].target = "/" + all[i].target
		}
	}
	return all
}
