// Package cluster starts a Kubernetes cluster for a test: only the API server, or also nodes that run pods. It starts within
// seconds, and needs neither containers nor privileges. It executes the localkube binary that `make local` builds, as envtest
// executes etcd and the API server, so tests depend only on client-go.
//
// If KubeconfigEnv is set, tests run in that cluster instead, one after the other: see NeedsOwn.
//
// Each cluster has its own directory and ports, so any number of clusters can run in parallel. A cluster stops when its test
// ends, even if the test process is killed. If the test fails, the package saves logs, events and objects, and logs the path.
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

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	// BinaryEnv overrides the path of the localkube binary. The default is bin/localkube in the repository.
	BinaryEnv = "FAIRLEAD_LOCALKUBE"
	// ImagesEnv overrides the path of the image store. The default is bin/images in the repository.
	ImagesEnv = "FAIRLEAD_IMAGES"
	// APIServerEnv is the path of another kube-apiserver, for the clusters of all tests: see clusterapi.Config.
	APIServerEnv = "FAIRLEAD_APISERVER"
	// ArtifactsEnv overrides the directory for artifacts of failed tests. The default is .local/failed in the repository.
	ArtifactsEnv = "FAIRLEAD_ARTIFACTS"

	// KubeconfigEnv makes tests use the cluster of a kubeconfig instead of their own. Tests that need more than such a
	// cluster provides are skipped.
	KubeconfigEnv = "FAIRLEAD_KUBECONFIG"

	stopTimeout = 20 * time.Second
	configFile  = "localkube.yaml"
)

// Cluster is a running cluster. Its Client causes outages and dials addresses in the cluster.
type Cluster struct {
	*clusterapi.Client
	clusterapi.Ready

	binary string
	rest   *rest.Config
	cmd    *exec.Cmd
	stdin  io.Closer     // closing it stops the cluster
	ended  chan struct{} // closed after the launcher has exited
	log    *transcript
	stop   sync.Once

	foreign *foreign // nil for a cluster that this package started
}

// Params holds the arguments of Launch.
type Params struct {
	Binary   string            // path of the localkube binary; empty: see FindBinary
	Config   clusterapi.Config // if Images is empty: ImagesEnv, then bin/images
	Progress io.Writer         // receives the log of the launcher, if set
	// Credential is the user of the cluster's processes, if set. It must be able to read Binary and Config.Images, and to write
	// Config.Dir.
	Credential *syscall.Credential
}

// Launch starts a cluster and returns when it is ready. Tests use Start.
func Launch(ctx context.Context, p Params) (*Cluster, error) {
	if err := p.completeParams(); err != nil {
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
	if err := file.Chmod(0o644); err != nil { // Credential may be another user
		return nil, err
	}
	if _, err := file.Write(raw); err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	c := &Cluster{
		Client: clusterapi.NewClient(p.Config.Dir), binary: p.Binary, ended: make(chan struct{}), log: &transcript{to: p.Progress},
	}
	if err := c.startLauncher(ctx, file.Name(), p.Credential); err != nil {
		return nil, err
	}
	return c, nil
}

func (p *Params) completeParams() error {
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
	if p.Config.APIServer == "" {
		p.Config.APIServer = os.Getenv(APIServerEnv)
	}
	return p.Config.Complete()
}

// startLauncher executes the launcher and waits until it reports that the cluster is ready.
func (c *Cluster) startLauncher(ctx context.Context, config string, user *syscall.Credential) error {
	ctx, cancel := context.WithTimeout(ctx, 2*kubetest.Patience)
	defer cancel()
	c.cmd = exec.Command(c.binary, "up", "--config", config, "--until-stdin-closes")
	c.cmd.Stderr = c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: user} // Ctrl-C must reach only the caller, which then closes stdin
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
		_ = c.cmd.Wait() // the log contains the error
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
		if errors.Is(err, io.EOF) { // the launcher exited; its last log line is the error
			return errors.New(c.log.lastLine())
		}
		return fmt.Errorf("start cluster: %w: %s", err, c.log.lastLine())
	}
	c.rest.QPS = -1 // no client-side rate limit
	return nil
}

// RESTConfig returns a configuration with administrator permissions and without a client-side rate limit.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.rest) }

// Clientset returns a clientset with administrator permissions.
func (c *Cluster) Clientset() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(c.RESTConfig())
}

// LauncherPID returns the process ID of the launcher. The cluster stops when the launcher exits.
func (c *Cluster) LauncherPID() int { return c.cmd.Process.Pid }

// Ended returns a channel that is closed after the launcher has exited, whether by Stop or by a failure.
func (c *Cluster) Ended() <-chan struct{} { return c.ended }

// Stop stops the cluster, if this package started it. Only its directory remains.
func (c *Cluster) Stop() {
	if c.foreign != nil {
		return
	}
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

// Kubectl runs kubectl with administrator permissions and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.runProgram(ctx, "kubectl", args)
}

// Helm runs helm with administrator permissions and returns its standard output.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return c.runProgram(ctx, "helm", args)
}

// programCommand returns a run of kubectl or helm, with administrator permissions.
func (c *Cluster) programCommand(ctx context.Context, program string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.binary, append([]string{program}, args...)...)
	home := filepath.Join(c.Ready.Dir, "home") // isolates the run from the user's caches and settings
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Ready.Kubeconfig, "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home,
		"HELM_DATA_HOME="+home)
	return cmd
}

func (c *Cluster) runProgram(ctx context.Context, program string, args []string) (string, error) {
	cmd := c.programCommand(ctx, program, args)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// transcript records the log of the launcher and forwards it.
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

// lastLine returns the last line of the log.
func (t *transcript) lastLine() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	return lines[len(lines)-1]
}
