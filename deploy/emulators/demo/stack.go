package main

import (
	"context"
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

// anyPort is an address for which the system chooses a port.
const anyPort = localhost + ":0"

// stack has the running processes.
type stack struct {
	processes []*process
	health    []string // the URL of each process that answers 200 when it is ready
	ended     chan *process
	gateway   string // address of Envoy's listener for clients
	metrics   string // address of the picker's metrics and status page
}

// startStack starts all processes and waits until they are ready. With an error it also returns the started processes. Each process gets
// the ports of those before it: the model servers, the picker, Envoy.
func startStack(ctx context.Context, o options, dir string) (*stack, error) {
	s := &stack{ended: make(chan *process, o.servers+2)}
	ctx, cancel := context.WithTimeout(ctx, o.startTimeout)
	defer cancel()
	at := ports{gateway: o.port}
	var err error
	if at.servers, err = s.startServers(ctx, o, dir); err != nil {
		return s, err
	}
	if at.picker, err = s.startPicker(ctx, o, dir, at.servers); err != nil {
		return s, err
	}
	if err := s.startEnvoy(ctx, o, dir, at); err != nil {
		return s, err
	}
	for i, p := range s.processes {
		if err := p.awaitReady(ctx, s.health[i]); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *stack) start(dir, name, binary string, args ...string) (*process, error) {
	p, err := startProcess(dir, name, s.ended, binary, args...)
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	return p, nil
}

// startServers starts the model servers, all at once, and returns their ports.
func (s *stack) startServers(ctx context.Context, o options, dir string) ([]int, error) {
	for i := range o.servers {
		if _, err := s.start(dir, serverName(i), filepath.Join(o.bin, "modelserver"), "--model="+model, "--port=0",
			"--address-file="+addressFile(dir, serverName(i)), "--pod-name="+serverName(i), "--pod-ip="+localhost, "--profile=realistic",
			"--enable-prompt-tokens-details"); err != nil {
			return nil, err
		}
	}
	var found []int
	for i, p := range s.processes {
		bound, err := p.awaitPorts(ctx, addressFile(dir, serverName(i)))
		if err != nil {
			return nil, err
		}
		found = append(found, bound["http"])
		s.health = append(s.health, "http://"+address(bound["http"])+"/health")
	}
	return found, nil
}

func serverName(i int) string { return "model-" + strconv.Itoa(i) }

// startPicker starts the picker and returns its port for gateways.
func (s *stack) startPicker(ctx context.Context, o options, dir string, servers []int) (int, error) {
	file := filepath.Join(dir, "endpoints.yaml")
	var endpoints []map[string]any
	for i, port := range servers {
		endpoints = append(endpoints, map[string]any{"name": serverName(i), "address": localhost, "port": port})
	}
	if err := writeYAML(file, map[string]any{"endpoints": endpoints}); err != nil {
		return 0, err
	}
	const name = "endpoint-picker"
	p, err := s.start(dir, name, filepath.Join(o.bin, name), "--endpoints-file="+file, "--secure-serving=false", "--report-endpoint",
		"--debug-picks="+strconv.Itoa(shownPicks), "--address-file="+addressFile(dir, name), "--grpc-port=0", "--grpc-health-port=0",
		"--metrics-bind-address="+anyPort, "--health-probe-bind-address="+anyPort, "--drain-delay=0s", "--drain-timeout=1s")
	if err != nil {
		return 0, err
	}
	bound, err := p.awaitPorts(ctx, addressFile(dir, name))
	if err != nil {
		return 0, err
	}
	s.metrics = address(bound["metrics"])
	s.health = append(s.health, "http://"+address(bound["health"])+"/readyz")
	return bound["grpc"], nil
}

// startEnvoy starts Envoy. Only its admin address is in a file: that says where its listeners are.
func (s *stack) startEnvoy(ctx context.Context, o options, dir string, at ports) error {
	manifest, err := os.ReadFile(o.bootstrap)
	if err != nil {
		return fmt.Errorf("read Envoy's bootstrap: %w", err)
	}
	bootstrap, err := localBootstrap(manifest, at)
	if err != nil {
		return fmt.Errorf("read Envoy's bootstrap: %s: %w", o.bootstrap, err)
	}
	file, admin := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "envoy.admin")
	if err := writeYAML(file, bootstrap); err != nil {
		return err
	}
	p, err := s.start(dir, "envoy", o.envoy, "-c", file, "--admin-address-path", admin, "--concurrency", "1", "--disable-hot-restart",
		"--log-level", "warn")
	if err != nil {
		return err
	}
	bound, err := p.awaitListeners(ctx, admin)
	if err != nil {
		return err
	}
	s.gateway = address(bound["http"])
	s.health = append(s.health, "http://"+address(bound["ready"])+"/ready")
	return nil
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

// addressFile returns the path of the file in which a process says where it listens.
func addressFile(dir, name string) string { return filepath.Join(dir, name+".addresses.json") }

func address(port int) string { return net.JoinHostPort(localhost, strconv.Itoa(port)) }

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
