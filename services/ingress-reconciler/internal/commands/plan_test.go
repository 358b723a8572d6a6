package commands

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/dryrun"
)

// examples is the directory with the example manifests of the repository.
const examples = "../../../../deploy/examples/ingress"

const assumed = "models/chat: assumed Service chat-engine port 8080 for the engine, ready\n"

func TestPlanOfTheExamples(t *testing.T) {
	t.Parallel()
	values := filepath.Join(examples, "values.yaml")
	out, log, err := run(t, "", "plan", "-f", examples, "--config", values)
	require.ErrorIs(t, err, dryrun.ErrDiffers)
	const skipped = ": skipped a document without apiVersion and kind: it is not a Kubernetes manifest\n"
	assert.Contains(t, log, values+skipped)
	rest := regexp.MustCompile(".*values.yaml"+skipped).ReplaceAllString(log, "")
	assert.Equal(t, assumed+
		"models/chat: http://chat.models.llm.example.com/ reaches the engine by httproute\n"+
		"models/chat: condition Unknown ParentStatusNotAvailable: http://chat.models.llm.example.com/; "+
		"Gateway gateways/public: no controller has reported a status yet (HTTPRoute chat-fairlead-12b6f8a0)\n"+
		"models/chat: HTTPRoute chat-fairlead-12b6f8a0 would be created\n", rest)
	assert.Contains(t, out, "kind: Service\n      name: chat-engine\n      port: 8080\n")

	out, _, err = run(t, "", "plan", "-f", examples, "--config", values, "-o", "json")
	require.ErrorIs(t, err, dryrun.ErrDiffers)
	var list struct {
		Kind  string
		Items []struct{ Kind string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	assert.Equal(t, "List", list.Kind)
	require.Len(t, list.Items, 1)
	assert.Equal(t, "HTTPRoute", list.Items[0].Kind)

	_, log, err = run(t, "", "plan", "-f", examples)
	require.EqualError(t, err, "nothing could be planned, for the reasons above")
	assert.Contains(t, log, "models/chat: condition False NoDomain: no domain is configured: set ingressDomain\n")
}

const lean = "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: lean, labels: {team: a}}, spec: {model: {name: llama}}}"

func TestAssumptions(t *testing.T) {
	t.Parallel()
	engine := strings.Replace(lean, "spec: {", "spec: {engine: {}, ", 1)
	tests := []struct {
		name, manifest string
		args           []string
		want           []string
		wantOut, err   string
	}{
		{
			name: "no component", manifest: lean, err: "nothing could be planned, for the reasons above",
			want: []string{
				"default/lean: assumed namespace default\n",
				"default/lean: the specification names no component: give --assume-components engine\n",
			},
		},
		{
			name: "a component by a flag, and a port", manifest: lean,
			args: []string{"--assume-components=router,engine", "--assume-port=9000", "-n", "team"},
			want: []string{
				"team/lean: assumed Service lean-router port 9000 for the router, ready\n",
				"team/lean: assumed Service lean-engine port 9000 for the engine, ready\n",
				"http://lean.team.example.com/ reaches the router",
			},
			wantOut: "name: lean-router\n      port: 9000\n", err: dryrun.ErrDiffers.Error(),
		},
		{
			name: "turned off", manifest: engine, args: []string{"--assume-services=false"},
			err:  "nothing could be planned, for the reasons above",
			want: []string{"default/lean: ServiceNotFound: engine lean-engine: the Service does not exist\n"},
		},
		{
			name:     "a status that says otherwise",
			manifest: strings.TrimSuffix(engine, "}") + ", status: {conditions: [{type: EngineReady, status: 'False'}]}}",
			want: []string{
				"assumed Service lean-engine port 8080 for the engine, with the readiness that its status reports\n", "ComponentNotReady",
			},
			err: "nothing could be planned, for the reasons above",
		},
		{
			name:     "selected by a label",
			manifest: engine + "\n---\n" + strings.ReplaceAll(strings.ReplaceAll(engine, "lean", "other"), "team: a", "team: b"),
			args:     []string{"-l", "team=b"}, want: []string{"default/other: HTTPRoute "}, wantOut: "name: other-engine\n",
			err: dryrun.ErrDiffers.Error(),
		},
		{
			name:     "one of two is unreadable",
			manifest: engine + "\n---\n" + strings.Replace(strings.ReplaceAll(engine, "lean", "broken"), "engine: {}", "engine: 1", 1),
			want:     []string{"default/broken: read InferenceService: spec.engine is 1, want an object\n"}, wantOut: "name: lean-engine\n",
			err: dryrun.ErrDiffers.Error(),
		},
		{
			name: "all are unreadable", manifest: strings.Replace(engine, "engine: {}", "engine: 1", 1),
			err: "nothing could be planned: default/lean: read InferenceService: spec.engine is 1, want an object",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, log, err := run(t, tt.manifest, append([]string{"plan", "--config", file(t, example), "-f", "-"}, tt.args...)...)
			require.EqualError(t, err, tt.err)
			for _, want := range tt.want {
				assert.Contains(t, log, want)
			}
			assert.Contains(t, out, tt.wantOut)
			assert.Equal(t, tt.wantOut != "", strings.Count(out, "kind: HTTPRoute\n") == 1, "one route")
		})
	}
}

func TestNothingIsAssumedThatExists(t *testing.T) {
	t.Parallel()
	_, log, err := run(t, "", "plan", "--config", file(t, example), "-f", "testdata/world")
	require.ErrorIs(t, err, dryrun.ErrDiffers)
	assert.NotContains(t, log, "assumed")
}

func TestFlagsThatHaveNoEffectAreRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--assume-port has an effect only with --filename": {"--assume-port=1"},
		"--header has an effect only with --request":       {"-f", "-", "-H", "a: b"},
		"--planned has an effect only with --request":      {"-f", "-", "--planned"},
		"--selector has an effect only without --request, which considers all services": {
			"-f", "-", "-l", "a=b", "--request=GET", "http://a/",
		},
		`--output "wide" is not one of yaml, json`: {"-f", "-", "-o", "wide"},
		`--output "yaml" is not one of text, json`: {
			"-f", "-", "-o", "yaml", "--request=GET", "http://a/",
		},
		`--assume-components "worker" is not one of router, engine, decoder`: {
			"-f", "-", "--assume-components=worker",
		},
		"--assume-port 0 is not a port":                                 {"-f", "-", "--assume-port=0"},
		"--selector: found '=='":                                        {"-f", "-", "-l", "=="},
		"configuration: line 1, column 9: config: a list has no fields": {"-f", "testdata/world", "--config", file(t, "config: [1]")},
		"give --request METHOD URL, such as --request GET http://chat.models.example.com/v1/models": {"-f", "-", "--request="},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			_, _, err := run(t, "", append([]string{"plan"}, args...)...)
			require.ErrorContains(t, err, want)
		})
	}
}

// plan predicts the condition, also for kinds that the program may not write and Gateways that do not exist.
func TestPlanForeseesTheCondition(t *testing.T) {
	t.Parallel()
	const class = "{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {name: t}, spec: {controller: " +
		"traefik.io/ingress-controller}}"
	service := strings.Replace(lean, "spec: {", "spec: {engine: {}, ", 1) + "\n---\n" + class
	const byPath = "ingressDomain: example.com\nstrategy: ingress\ningressClassName: t\nperISVCSubdomain: false\n"
	tests := []struct {
		name, config string
		args         []string
		want         string
		writes       []string // kinds
	}{
		{name: "all kinds", config: byPath, want: "condition Unknown LoadBalancerPending: ", writes: []string{"Middleware", "Ingress"}},
		{
			name: "without Middlewares", config: byPath, args: []string{"--kinds=ingresses"}, writes: []string{"Ingress"},
			want: "install the CRD, or add middlewares to --kinds",
		},
		{
			name:   "a Gateway of Istio that does not exist",
			config: "ingressDomain: example.com\nstrategy: virtualservice\ningressGateway: istio/public\n",
			want:   "condition False GatewayNotFound: ", writes: []string{"VirtualService"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, log, err := run(t, service, append([]string{"plan", "--config", file(t, tt.config), "-f", "-"}, tt.args...)...)
			require.ErrorIs(t, err, dryrun.ErrDiffers)
			assert.Contains(t, log, tt.want)
			var created, written []string
			for _, match := range regexp.MustCompile(`(\w+) \S+ would be created`).FindAllStringSubmatch(log, -1) {
				created = append(created, match[1])
			}
			for _, match := range regexp.MustCompile(`(?m)^kind: (\w+)$`).FindAllStringSubmatch(out, -1) {
				written = append(written, match[1])
			}
			assert.Equal(t, tt.writes, created)
			assert.Equal(t, tt.writes, written)
		})
	}
}

// A pod has the permissions of the chart: it has no permissions for kinds that the chart omits, and cannot get objects by name, except
// two ConfigMaps.
func TestPlanWithThePermissionsOfThePod(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/world/service.yaml")
	require.NoError(t, err)
	gateway, err := os.ReadFile("testdata/world/gateway.yaml")
	require.NoError(t, err)
	configMap := "{apiVersion: v1, kind: ConfigMap, metadata: {name: ours, namespace: fairlead}, data: {config: 'ingressDomain: " +
		"example.com\n\nomeIngressGateway: gateways/public'}}"
	route := "{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: x, namespace: y}, spec: {}}"
	api, kubeconfig := startAPIServer(t, []string{"ingresses", "inferencepools"}, string(text), string(gateway), configMap, route)
	out, log, err := run(t, "", "plan", kubeconfig, "--config-map", "fairlead/ours")
	require.ErrorIs(t, err, dryrun.ErrDiffers, log)
	assert.Contains(t, out, "name: chat-router\n")
	assert.Contains(t, log,
		"ingresses.networking.k8s.io: skipped, because this user may not list them; the plan treats the kind as not available\n")
	assert.Zero(t, api.count("DELETE")+api.count("POST")+api.count("PATCH"))

	_, kubeconfig = startAPIServer(t, []string{"inferenceservices"}, string(text))
	_, _, err = run(t, "", "plan", kubeconfig)
	require.ErrorContains(t, err, "list inferenceservices")
}
