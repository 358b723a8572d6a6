package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/dryrun"
)

// run runs the command line, and returns its output.
func run(t *testing.T, stdin string, args ...string) (out, log string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRoot(&stdout, &stderr, apiServers{})
	root.SetIn(strings.NewReader(stdin))
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// file writes a text to a file, and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const example = "ingressDomain: example.com\nomeIngressGateway: gateways/public\n"

func TestPlanFromFiles(t *testing.T) {
	t.Parallel()
	config := file(t, example)
	out, log, err := run(t, "", "plan", "--config", config, "-f", "testdata/world")
	require.ErrorIs(t, err, dryrun.ErrDiffers)
	name := "chat-fairlead-" + strings.TrimSpace(strings.SplitN(strings.SplitN(out, "name: chat-fairlead-", 2)[1], "\n", 2)[0])
	assert.Equal(t, "models/chat: https://chat.models.example.com:8443/ reaches the router by httproute\n"+
		"models/chat: condition Unknown ParentStatusNotAvailable: https://chat.models.example.com:8443/; "+
		"Gateway gateways/public: no controller has reported a status yet (HTTPRoute "+name+")\n"+
		"models/chat: HTTPRoute "+name+" would be created\n", log)
	assert.Contains(t, out, "request: 1m30s\n", "the output contains the route as YAML")

	t.Run("a difference is shown, and what is no longer wanted and would be deleted", func(t *testing.T) {
		t.Parallel()
		live := strings.Replace(out, "request: 1m30s", "request: 5s", 1)
		old := strings.ReplaceAll(out, name, "chat-fairlead-00000000")
		_, log, err := run(t, live+old, "plan", "--config", config, "-f", "testdata/world", "-f", "-")
		require.ErrorIs(t, err, dryrun.ErrDiffers)
		assert.Contains(t, log, "-      request: 5s\n+      request: 1m30s\n")
		assert.Contains(t, log, "models/chat: HTTPRoute chat-fairlead-00000000 is no longer wanted and would be deleted\n")
	})
}

func TestPlanExplainsReasons(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, config, want string }{
		{
			name: "no domain", config: "omeIngressGateway: gateways/public",
			want: "models/chat: NoDomain: no domain is configured: set ingressDomain\n",
		},
		{
			name: "another host than the listener's", config: example + "domainTemplate: chat.example.com",
			want: "condition False NoMatchingListenerHostname: http://chat.example.com/; Gateway gateways/public: no listener has host " +
				"chat.example.com: listener https has *.models.example.com (HTTPRoute ",
		},
		{
			name: "no such Gateway", config: "ingressDomain: example.com\nomeIngressGateway: gateways/other",
			want: "condition False GatewayNotFound: http://chat.models.example.com/; Gateway gateways/other: the Gateway does not exist " +
				"(HTTPRoute ",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, log, _ := run(t, "", "plan", "--config", file(t, tt.config), "-f", "testdata/world")
			assert.Contains(t, log, tt.want)
		})
	}
}

func TestPlanFails(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, stdin, want string
		args              []string
	}{
		{
			name: "a wrong configuration", args: []string{"--config", file(t, "strategy: magic"), "-f", "testdata/world"},
			want: `configuration: line 1, column 11: strategy: "magic" is not one of auto, httproute, ingress, virtualservice`,
		},
		{
			name: "no such file", args: []string{"-f", "testdata/nothing"},
			want: "read manifests: lstat testdata/nothing: no such file or directory",
		},
		{
			name: "no YAML", stdin: "a: [", args: []string{"-f", "-"},
			want: "read manifests: stdin: error converting YAML to JSON: yaml: line 1: did not find expected node content",
		},
		{
			name: "no services", args: []string{"-f", "testdata/world/gateway.yaml"},
			want: "nothing could be planned: there are no InferenceServices to plan",
		},
		{
			name: "no such service", args: []string{"-f", "testdata/world", "other"},
			want: "nothing could be planned: there are no InferenceServices to plan",
		},
		{
			name: "no ConfigMap", args: []string{"-f", "testdata/world", "--config-map", "a/b"},
			want: "there is no ConfigMap a/b with key config: give --config or --config-map",
		},
		{
			name: "a wrong flag", args: []string{"--config-map", "b"},
			want: `invalid argument "b" for "--config-map" flag: must be namespace/name`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := run(t, tt.stdin, append([]string{"plan"}, tt.args...)...)
			assert.EqualError(t, err, tt.want)
		})
	}
}

func TestVersionAndGraph(t *testing.T) {
	t.Parallel()
	out, _, err := run(t, "", "--version")
	require.NoError(t, err)
	assert.Regexp(t, "^ingress-reconciler ", out)
	out, _, err = run(t, "", "graph")
	require.NoError(t, err)
	assert.Contains(t, out, "digraph")
	_, _, err = run(t, "", "--workers=0")
	require.EqualError(t, err, "flags: --workers 0 is less than one")
}
