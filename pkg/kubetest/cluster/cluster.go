// Package cluster gives a test a Kubernetes of its own: the API server alone or whole nodes that run pods, started within
// seconds, without containers and without privileges. It executes the localkube binary that `make local` builds, as
// envtest executes etcd and the API server, so a test that uses it links client-go only.
//
// Each cluster has a folder and ports of its own; any number run side by side. A cluster ends with its test, even when the
// test's process is killed. When the test fails, logs, events and objects are kept and the test says where.
package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	// BinaryEnv names the localkube binary; without it bin/localkube of the repository is taken.
	BinaryEnv = "FAIRLEAD_LOCALKUBE"
	// ImagesEnv names the image store; without it bin/images of the repository is taken.
	ImagesEnv = "FAIRLEAD_IMAGES"
	// ArtifactsEnv names the folder that gets what a failed test leaves; without it .local/failed of the repository.
	ArtifactsEnv = "FAIRLEAD_ARTIFACTS"

	startTimeout = 3 * time.Minute
	stopTimeout  = 20 * time.Second
	configFile   = "localkube.yaml"
)

// Cluster is a running Kubernetes. Its Client makes outages and dials into it.
type Cluster struct {
	*clusterapi.Client
	clusterapi.Ready

	binary string
	rest   *rest.Config
	cmd    *exec.Cmd
	stdin  io.Closer     // the cluster ends when it is closed
	ended  chan struct{} // closed when the launcher has ended
	log    *transcript
	stop   sync.Once
}

// Params says what Launch starts.
type Params struct {
	Binary   string            // the localkube binary; "" finds it
	Config   clusterapi.Config // Images "" finds the store
	Progress io.Writer         // gets the story of the start, if set
}

// Launch starts a cluster and returns when it is ready. Tests use Start.
func Launch(ctx context.Context, p Params) (*Cluster, error) {
	if err := p.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(p.Config.Dir, 0o755); err != nil {
		return nil, err
	}
	raw, err := yaml.Marshal(p.Config)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	file, err := os.CreateTemp("", configFile)
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(raw); err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	c := &Cluster{Client: clusterapi.NewClient(p.Config.Dir), binary: p.Binary, ended: make(chan struct{}), log: &transcript{to: p.Progress}}
	if err := c.start(ctx, file.Name()); err != nil {
		return nil, err
	}
	return c, nil
}

func (p *Params) complete() error {
	var err error
	if p.Binary == "" {
		if p.Binary, err = FindBinary(); err != nil {
			return err
		}
	}
	if p.Config.Images == "" && !p.Config.ControlPlaneOnly {
		if p.Config.Images, err = findImages(); err != nil {
			return err
		}
	}
	return p.Config.Complete()
}

// start runs the launcher and waits for its word.
func (c *Cluster) start(ctx context.Context, config string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c.cmd = exec.Command(c.binary, "up", "--config", config, "--until-stdin-closes")
	c.cmd.Stderr = c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the caller, who then closes stdin
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.binary, err)
	}
	ready := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(stdout).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &c.Ready)
		}
		ready <- err
		_, _ = io.Copy(io.Discard, stdout)
		_ = c.cmd.Wait() // its story is in the log
		close(c.ended)
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		c.rest, err = clientcmd.BuildConfigFromFlags("", c.Ready.Kubeconfig)
	}
	if err != nil {
		c.Stop()
		if errors.Is(err, io.EOF) { // it ended, and has said why
			return errors.New(c.log.last())
		}
		return fmt.Errorf("start cluster: %w: %s", err, c.log.last())
	}
	c.rest.QPS = -1 // a test is no tenant
	return nil
}

// RESTConfig is an administrator's, without a client-side rate limit.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.rest) }

// Clientset is an administrator's.
func (c *Cluster) Clientset() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(c.RESTConfig())
}

// LauncherPID is the process whose end is the cluster's.
func (c *Cluster) LauncherPID() int { return c.cmd.Process.Pid }

// Ended is closed when the cluster has ended, wanted or not.
func (c *Cluster) Ended() <-chan struct{} { return c.ended }

// Stop ends the cluster; nothing of it is left but its folder.
func (c *Cluster) Stop() {
	c.stop.Do(func() {
		c.stdin.Close()
		select {
		case <-c.ended:
		case <-time.After(stopTimeout):
			_ = c.cmd.Process.Kill()
			<-c.ended
		}
	})
}

// Kubectl runs kubectl as administrator and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, nil, "kubectl", args)
}

// Apply gives manifests to kubectl apply --server-side.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.run(ctx, strings.NewReader(manifests), "kubectl", []string{"apply", "--server-side", "-f", "-"})
	return err
}

// Helm runs helm as administrator and returns its standard output.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, nil, "helm", args)
}

func (c *Cluster) run(ctx context.Context, stdin io.Reader, program string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, c.binary, append([]string{program}, args...)...)
	home := filepath.Join(c.Ready.Dir, "home") // caches and settings of whoever runs the test stay out of it
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Ready.Kubeconfig, "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// transcript keeps what the launcher says, and passes it on.
type transcript struct {
	to   io.Writer
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if t.to != nil {
		return t.to.Write(p)
	}
	return len(p), nil
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// last is the last line.
func (t *transcript) last() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	return lines[len(lines)-1]
}
