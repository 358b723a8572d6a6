// Package stack installs the common parts of the demo and the whole-system tests: simulated model servers, the endpoint
// picker and an Envoy that uses it, from the unmodified manifests and charts for users. The Envoy has its own bootstrap, or
// Envoy Gateway with Envoy AI Gateway programs it.
package stack

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Names of the installed objects.
const (
	Model  = "fairlead/demo-8b"
	Pool   = "models"
	Picker = "picker"
	Envoy  = "envoy"

	// Images of the model servers and the picker.
	ServerImage = "modelserver"
	PickerImage = "endpoint-picker"

	// PickerMetrics is an address for Cluster.Dial.
	PickerMetrics = "picker.default:metrics"

	onePicker = "replicas=1" // tests count the picks of one picker

	// attemptTimeout is the time after which a request that is repeated anyway gives up: the address of a pod that is gone answers nothing.
	attemptTimeout = 10 * time.Second
)

// WaitTimeout is the option that limits what kubectl waits for.
var WaitTimeout = "--timeout=" + kubetest.Patience.String()

// Targets that a cluster publishes so that Gateway works.
const (
	envoyTarget   = "envoy.default:http"
	gatewayTarget = "gateway.envoy-gateway-system:80"
)

// Publish requests a host address for the Envoy with its own bootstrap; port 0 selects a free one.
func Publish(host string) func(*clusterapi.Config) { return publish(host, envoyTarget) }

// PublishGateway requests a host address for Envoy Gateway's Envoy.
func PublishGateway(host string) func(*clusterapi.Config) { return publish(host, gatewayTarget) }

func publish(host, target string) func(*clusterapi.Config) {
	return func(c *clusterapi.Config) {
		c.Publish = append(c.Publish, clusterapi.Publish{Host: host, Target: target})
	}
}

// Options configure the parts.
type Options struct {
	Tag     string   // of our images
	Servers int      // model servers
	Model   []string // their flags
	Values  []string // helm values of the model servers, as name=value
	Odd     []string // flags of one additional server; empty: none
	Picker  []string // helm values of the picker, as name=value
	Filters string   // YAML of HTTP filters before the picker's, in the Envoy with its own bootstrap
	Hosts   string   // YAML of virtual hosts before the one for all requests, in that Envoy
	Retries bool     // add the example's retry policy to that Envoy
}

// Stack is what Install or InstallGateway installed.
type Stack struct {
	cluster      *cluster.Cluster
	root         string
	options      Options
	pickerValues string // among the examples
}

// Install installs everything, with an Envoy with its own bootstrap, and waits until it is ready.
func Install(ctx context.Context, c *cluster.Cluster, o Options) (*Stack, error) {
	s, err := newStack(ctx, c, o)
	if err != nil {
		return nil, err
	}
	s.pickerValues = s.example("picker-values.yaml")
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.applyEnvoy(gctx) })
	g.Go(func() error { return s.UpgradeServers(gctx, o.Tag) })
	g.Go(func() error { return s.UpgradePicker(gctx, o.Tag) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return s, nil
}

// newStack returns the stack of a cluster with the InferencePool CRD.
func newStack(ctx context.Context, c *cluster.Cluster, o Options) (*Stack, error) {
	root, err := cluster.Repository()
	if err != nil {
		return nil, err
	}
	crd, err := os.ReadFile(filepath.Join(root, "bin", "crds", "inferencepools.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read InferencePool CRD (make local-images fetches it): %w", err)
	}
	if err := c.Apply(ctx, string(crd)); err != nil {
		return nil, err
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Established", WaitTimeout,
		"crd/inferencepools.inference.networking.k8s.io"); err != nil {
		return nil, err
	}
	return &Stack{cluster: c, root: root, options: o}, nil
}

func (s *Stack) example(name string) string {
	return filepath.Join(s.root, "deploy", "examples", "inference", name)
}

func (s *Stack) applyEnvoy(ctx context.Context) error {
	raw, err := os.ReadFile(s.example("envoy.yaml"))
	if err != nil {
		return err
	}
	manifest := string(raw)
	for line, text := range map[string]string{"http_filters:": s.options.Filters, "virtual_hosts:": s.options.Hosts} {
		if manifest, err = insertAfter(manifest, line, text); err != nil {
			return err
		}
	}
	if s.options.Retries {
		policy, err := os.ReadFile(s.example("retry-policy.yaml"))
		if err != nil {
			return err
		}
		if manifest, err = insertAfter(manifest, "timeout: 0s", string(policy)); err != nil {
			return err
		}
	}
	if err := s.cluster.Apply(ctx, manifest); err != nil {
		return err
	}
	return s.rolledOut(ctx, Envoy)
}

// insertAfter inserts YAML after the first matching line of a bootstrap, with the same indentation.
func insertAfter(manifest, line, text string) (string, error) {
	at := regexp.MustCompile(`(?m)^( *)` + regexp.QuoteMeta(line) + `
`).FindStringSubmatchIndex(manifest)
	if at == nil {
		return "", fmt.Errorf("the bootstrap has no line %q", line)
	}
	indent, end := manifest[at[2]:at[3]], at[1]
	var b strings.Builder
	b.WriteString(manifest[:end])
	for line := range strings.Lines(text) {
		b.WriteString(indent + line)
	}
	b.WriteString(manifest[end:])
	return b.String(), nil
}

// UpgradeServers rolls the model servers to another tag and waits for the new ones; the old ones may still be draining.
func (s *Stack) UpgradeServers(ctx context.Context, tag string) error {
	args := append([]string{"upgrade", "--install", Pool, s.example("model-servers"), "--set", "model=" + Model,
		"--set", fmt.Sprintf("replicas=%d", s.options.Servers)}, imageValues(ServerImage, tag)...)
	if len(s.options.Model) > 0 {
		args = append(args, "--set", list("args", s.options.Model))
	}
	for _, v := range s.options.Values {
		args = append(args, "--set", v)
	}
	deployments := []string{Pool}
	if len(s.options.Odd) > 0 {
		args = append(args, "--set", "odd.enabled=true", "--set", list("odd.args", s.options.Odd))
		deployments = append(deployments, Pool+"-odd")
	}
	if _, err := s.cluster.Helm(ctx, args...); err != nil {
		return err
	}
	return s.rolledOut(ctx, deployments...)
}

// UpgradePicker rolls the endpoint picker to another tag, with further helm values, and waits for the new one.
func (s *Stack) UpgradePicker(ctx context.Context, tag string, values ...string) error {
	args := []string{"upgrade", "--install", Picker, filepath.Join(s.root, "charts", "endpoint-picker"),
		"--values", s.pickerValues, "--set", onePicker}
	args = append(args, imageValues(PickerImage, tag)...)
	for _, v := range append(append([]string(nil), s.options.Picker...), values...) {
		args = append(args, "--set", v)
	}
	if _, err := s.cluster.Helm(ctx, args...); err != nil {
		return err
	}
	return s.rolledOut(ctx, Picker)
}

func (s *Stack) rolledOut(ctx context.Context, deployments ...string) error {
	for _, d := range deployments {
		if _, err := s.cluster.Kubectl(ctx, "rollout", "status", "deployment/"+d, WaitTimeout); err != nil {
			return err
		}
	}
	return nil
}

// list writes a list as a value of helm's --set.
func list(name string, items []string) string {
	escaped := make([]string, len(items))
	for i, item := range items {
		escaped[i] = strings.ReplaceAll(item, ",", `\,`)
	}
	return name + "={" + strings.Join(escaped, ",") + "}"
}

// Gateway is the base URL of the published gateway.
func (s *Stack) Gateway() string { return "http://" + s.cluster.Published[0] }

// WaitGateway returns when a request succeeds. Envoy, picker and model servers are ready before the call, but other parts do
// not know it yet: Envoy resolves names periodically, and a node's service proxy learns endpoints a moment later.
func (s *Stack) WaitGateway(ctx context.Context) error {
	return waitAnswer(ctx, http.DefaultClient, s.Gateway())
}

// waitAnswer returns when a request to a base URL succeeds.
func waitAnswer(ctx context.Context, client *http.Client, base string) error {
	err := poll(ctx, kubetest.Patience, 100*time.Millisecond, func(ctx context.Context) error {
		_, err := get(ctx, client, base+"/v1/models")
		return err
	})
	if err != nil {
		return fmt.Errorf("wait until %s answers: %w", base, err)
	}
	return nil
}

// Fetch reads a page from an address inside the cluster, in the format of Cluster.Dial. It waits for the answer with patience: a caller
// that asks a pod that may be gone limits ctx.
func Fetch(ctx context.Context, c *cluster.Cluster, addr, path string) (string, error) {
	client := &http.Client{Timeout: kubetest.Patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx, addr) }}}
	return get(ctx, client, "http://cluster"+path)
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return string(raw), err
}
