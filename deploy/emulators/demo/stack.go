package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// shownPicks is the number of picks on the picker's status page: they fit on a screen below the endpoints.
const shownPicks = 20

// stack has the running processes.
type stack struct {
	processes []*process
	ended     chan *process
	metrics   string // address of the picker's metrics and status page
}

// ports are the ports of a stack, except the port of the gateway.
type ports struct {
	picker, metrics, health, grpcHealth, admin, ready int
	servers                                           []int
}

// startStack starts all processes and waits until they are ready. With an error it also returns the started processes.
func startStack(ctx context.Context, o options, dir string) (*stack, error) {
	s := &stack{ended: make(chan *process, o.servers+2)}
	free, err := freePorts(o.servers + 6)
	if err != nil {
		return s, err
	}
	at := ports{picker: free[0], metrics: free[1], health: free[2], grpcHealth: free[3], admin: free[4], ready: free[5], servers: free[6:]}
	s.metrics = address(at.metrics)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.startServers(o, dir, at); err != nil {
		return s, err
	}
	if err := s.startPicker(o, dir, at); err != nil {
		return s, err
	}
	if err := s.startEnvoy(o, dir, at); err != nil {
		return s, err
	}
	urls := make([]string, 0, len(s.processes))
	for _, port := range at.servers {
		urls = append(urls, "http://"+address(port)+"/health")
	}
	urls = append(urls, "http://"+address(at.health)+"/readyz", "http://"+address(at.ready)+"/ready")
	for i, p := range s.processes {
		if err := p.awaitReady(ctx, urls[i]); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *stack) start(dir, name, binary string, args ...string) error {
	p, err := startProcess(dir, name, s.ended, binary, args...)
	if err != nil {
		return err
	}
	s.processes = append(s.processes, p)
	return nil
}

func (s *stack) startServers(o options, dir string, at ports) error {
	for i, port := range at.servers {
		if err := s.start(dir, serverName(i), filepath.Join(o.bin, "modelserver"), "--model="+model, "--port="+strconv.Itoa(port),
			"--pod-name="+serverName(i), "--pod-ip="+localhost, "--profile=realistic", "--enable-prompt-tokens-details"); err != nil {
			return err
		}
	}
	return nil
}

func serverName(i int) string { return "model-" + strconv.Itoa(i) }

func (s *stack) startPicker(o options, dir string, at ports) error {
	file := filepath.Join(dir, "endpoints.yaml")
	var endpoints []map[string]any
	for i, port := range at.servers {
		endpoints = append(endpoints, map[string]any{"name": serverName(i), "address": localhost, "port": port})
	}
	if err := writeYAML(file, map[string]any{"endpoints": endpoints}); err != nil {
		return err
	}
	return s.start(dir, "endpoint-picker", filepath.Join(o.bin, "endpoint-picker"), "--endpoints-file="+file, "--secure-serving=false", "--report-endpoint",
		"--debug-picks="+strconv.Itoa(shownPicks),
		"--grpc-port="+strconv.Itoa(at.picker), "--grpc-health-port="+strconv.Itoa(at.grpcHealth), "--metrics-bind-address="+address(at.metrics),
		"--health-probe-bind-address="+address(at.health), "--drain-delay=0s", "--drain-timeout=1s")
}

func (s *stack) startEnvoy(o options, dir string, at ports) error {
	manifest, err := os.ReadFile(o.bootstrap)
	if err != nil {
		return fmt.Errorf("read Envoy's bootstrap: %w", err)
	}
	bootstrap, err := localBootstrap(manifest, o.port, at)
	if err != nil {
		return fmt.Errorf("read Envoy's bootstrap: %s: %w", o.bootstrap, err)
	}
	file := filepath.Join(dir, "envoy.yaml")
	if err := writeYAML(file, bootstrap); err != nil {
		return err
	}
	return s.start(dir, "envoy", o.envoy, "-c", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warn")
}

// stop ends all processes in reverse order: Envoy, the picker, the model servers.
func (s *stack) stop() {
	for _, p := range slices.Backward(s.processes) {
		p.stop()
	}
}

// logs returns the end of each log.
func (s *stack) logs() string {
	var text strings.Builder
	for _, p := range s.processes {
		fmt.Fprintf(&text, "%s: %s\n", p.name, p.tail())
	}
	return text.String()
}

// localBootstrap returns the bootstrap in the ConfigMap of a manifest, with the addresses of this machine.
func localBootstrap(manifest []byte, gateway int, at ports) (map[string]any, error) {
	first, _, _ := strings.Cut(string(manifest), "\n---\n")
	var config struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal([]byte(first), &config); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	var bootstrap map[string]any
	if err := yaml.Unmarshal([]byte(config.Data["envoy.yaml"]), &bootstrap); err != nil {
		return nil, fmt.Errorf("decode envoy.yaml: %w", err)
	}
	resources, _ := bootstrap["static_resources"].(map[string]any)
	listeners, _ := resources["listeners"].([]any)
	clusters, _ := resources["clusters"].([]any)
	if len(listeners) != 2 || len(clusters) != 2 {
		return nil, errors.New("bootstrap must have the listeners http and ready, and the clusters picker and pool")
	}
	bootstrap["admin"] = map[string]any{"address": socket(at.admin)}
	for _, l := range listeners {
		listener, _ := l.(map[string]any)
		port, ok := map[any]int{"http": gateway, "ready": at.ready}[listener["name"]]
		if !ok {
			return nil, fmt.Errorf("unknown listener %v", listener["name"])
		}
		listener["address"] = socket(port)
	}
	for _, c := range clusters {
		cluster, _ := c.(map[string]any)
		targets := map[any][]int{"picker": {at.picker}, "pool": at.servers}[cluster["name"]]
		if targets == nil {
			return nil, fmt.Errorf("unknown cluster %v", cluster["name"])
		}
		setTargets(cluster, targets)
	}
	return bootstrap, nil
}

// setTargets replaces the addresses of an Envoy cluster, which are DNS names in a Kubernetes cluster.
func setTargets(cluster map[string]any, targets []int) {
	for _, dns := range []string{"dns_lookup_family", "dns_refresh_rate", "dns_failure_refresh_rate"} {
		delete(cluster, dns)
	}
	var endpoints []any
	for _, port := range targets {
		endpoints = append(endpoints, map[string]any{"endpoint": map[string]any{"address": socket(port)}})
	}
	cluster["type"] = "STATIC"
	cluster["load_assignment"] = map[string]any{
		"cluster_name": cluster["name"], "endpoints": []any{map[string]any{"lb_endpoints": endpoints}},
	}
}

func socket(port int) map[string]any {
	return map[string]any{"socket_address": map[string]any{"address": localhost, "port_value": port}}
}

func address(port int) string { return net.JoinHostPort(localhost, strconv.Itoa(port)) }

// freePorts returns n different ports that no program uses. It holds all of them until it has found the last one.
func freePorts(n int) ([]int, error) {
	var free []int
	var held []net.Listener
	defer func() {
		for _, l := range held {
			l.Close()
		}
	}()
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort(localhost, "0"))
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, l)
		free = append(free, l.Addr().(*net.TCPAddr).Port)
	}
	return free, nil
}

func writeYAML(file string, document any) error {
	text, err := yaml.Marshal(document)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
