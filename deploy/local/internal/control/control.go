// Package control is the first process of a cluster's namespaces. It creates the network and the certificates, starts the
// control plane's programs and the nodes as its children, restarts them, and handles requests on the control socket (package
// clusterapi). When it ends, the kernel kills all remaining processes of its pid namespace.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/deploy/local/internal/cgroup"
	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/supervise"
	"fairlead.dev/deploy/local/internal/svcproxy"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Env is the environment variable with the launcher's Handover.
const Env = "LOCALKUBE_HANDOVER"

// FirstListener is the file descriptor of the API server's host listener; the published ones follow.
const FirstListener = 3

// Handover contains the information that the launcher collected on the host.
type Handover struct {
	Config     clusterapi.Config
	APIAddress string   // the host listener's actual address
	Published  []string // actual addresses
	Shim       string
	UserRange  bool // the user namespace maps a range of ids
	Cgroups    *cgroup.Tree
	NoLimits   string // reason why there are no cgroups
	Started    time.Time
}

// cluster is the running cluster.
type cluster struct {
	Handover
	exe       string
	say       func(format string, args ...any)
	client    kubernetes.Interface
	proxy     string                         // the implementation of Services on nodes
	services  atomic.Pointer[svcproxy.Proxy] // nil until services are served
	processes []*supervise.Process
	nodes     []*node
	ready     chan struct{}
}

// Run is the process's main function. It returns after SIGTERM, or when the cluster cannot start. out receives the Ready
// line, progress the log for people.
func Run(out, progress io.Writer) error {
	c, err := load(progress)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := c.start(ctx); err != nil {
		if ctx.Err() != nil { // SIGTERM before the cluster was ready
			return nil
		}
		return err
	}
	for _, p := range c.processes {
		p.Settle()
	}
	for _, n := range c.nodes {
		n.settle()
	}
	close(c.ready)
	seconds := time.Since(c.Started).Seconds()
	c.say("ready: export KUBECONFIG=%s", clusterapi.KubeconfigFile(c.Config.Dir))
	if err := json.NewEncoder(out).Encode(clusterapi.Ready{Dir: c.Config.Dir, Kubeconfig: clusterapi.KubeconfigFile(c.Config.Dir),
		APIAddress: c.APIAddress, Published: c.Published, Seconds: seconds}); err != nil {
		return fmt.Errorf("announce readiness: %w", err)
	}
	<-ctx.Done()
	return nil
}

func load(progress io.Writer) (*cluster, error) {
	c := &cluster{exe: "/proc/self/exe", ready: make(chan struct{})}
	if err := json.Unmarshal([]byte(os.Getenv(Env)), &c.Handover); err != nil {
		return nil, fmt.Errorf("read handover of the launcher: %w", err)
	}
	if err := os.Unsetenv(Env); err != nil {
		return nil, err
	}
	c.say = func(format string, args ...any) {
		fmt.Fprintf(progress, "%6.2fs  %s\n", time.Since(c.Started).Seconds(), fmt.Sprintf(format, args...))
	}
	return c, nil
}

// start starts all parts in order, and returns when all of them answer.
func (c *cluster) start(ctx context.Context) error {
	if err := privateMounts(); err != nil {
		return err
	}
	if err := network.SetupControl(); err != nil {
		return fmt.Errorf("set up network: %w", err)
	}
	if err := c.chooseProxy(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(clusterapi.LogDir(c.Config.Dir), 0o755); err != nil {
		return err
	}
	if err := components.WriteCertificates(&c.Config, c.APIAddress); err != nil {
		return err
	}
	if c.Config.Audit {
		if err := os.WriteFile(components.AuditPolicy(c.Config.Dir), []byte(components.AuditPolicyText), 0o644); err != nil {
			return err
		}
	}
	c.say("created namespaces, network and certificates")
	if c.NoLimits != "" {
		c.say("limits of containers are not enforced: %s", c.NoLimits)
	}
	for _, name := range components.Control(&c.Config) {
		c.processes = append(c.processes, c.component(name))
	}
	for i, n := range c.Config.Nodes {
		c.nodes = append(c.nodes, newNode(c, i+1, n))
	}
	if err := c.serveSteering(ctx); err != nil {
		return err
	}
	return c.whileNothingFails(ctx, c.startAll)
}

// component returns the process of a program of the control plane.
func (c *cluster) component(name string) *supervise.Process {
	exe, args := c.exe, append([]string{name}, components.Args(&c.Config, name)...)
	if name == clusterapi.APIServer && c.Config.APIServer != "" {
		exe, args = c.Config.APIServer, args[1:]
	}
	return supervise.New(exe, supervise.Spec{
		Name: name, Args: args, Env: childEnv(),
		LogFile: filepath.Join(clusterapi.LogDir(c.Config.Dir), name+".log"),
		Died:    func(why error) { c.say("%v; restarting it", why) },
	})
}

// startAll starts the programs and waits for them.
func (c *cluster) startAll(ctx context.Context) error {
	if err := c.startAPI(ctx); err != nil {
		return err
	}
	for _, p := range c.processes[apiProcesses:] {
		if err := p.Start(); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := n.boot(); err != nil {
			return err
		}
	}
	if err := c.serveServices(ctx); err != nil {
		return err
	}
	if c.Config.ControlPlaneOnly {
		return nil
	}
	if err := c.waitNodes(ctx); err != nil {
		return err
	}
	return c.waitProxies(ctx)
}

// apiProcesses is the number of processes of the API: etcd and its server, which all others need.
const apiProcesses = 2

// startAPI starts etcd and the API server and waits until it answers.
func (c *cluster) startAPI(ctx context.Context) error {
	for _, p := range c.processes[:apiProcesses] {
		if err := p.Start(); err != nil {
			return err
		}
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", components.Kubeconfig(c.Config.Dir, components.UserControl))
	if err != nil {
		return err
	}
	cfg.QPS = -1
	if c.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	if err := c.forwardAPI(); err != nil {
		return err
	}
	if err := c.waitAPI(ctx); err != nil {
		return err
	}
	c.say("%s answers", clusterapi.APIServer)
	if err := c.applyYurthub(ctx); err != nil {
		return err
	}
	if c.UserRange {
		return nil
	}
	return c.applyRootlessPolicy(ctx)
}

// whileNothingFails runs f until it ends. If a child dies at its start, it cancels f.
func (c *cluster) whileNothingFails(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, failed := range c.failures() {
		go func() {
			select {
			case err := <-failed:
				cancel(err)
			case <-ctx.Done():
			}
		}()
	}
	err := f(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause // whatever f returned: a dead child is not restarted before the cluster is ready
	}
	return err
}

func (c *cluster) failures() []<-chan error {
	var all []<-chan error
	for _, p := range c.processes {
		all = append(all, p.Failed())
	}
	for _, n := range c.nodes {
		all = append(all, n.failed)
	}
	return all
}

func (c *cluster) process(name string) *supervise.Process {
	for _, p := range c.processes {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// privateMounts makes our mounts private and mounts /proc for the pid namespace.
func privateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w%s", err, userNamespaceHint(err))
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w%s", err, userNamespaceHint(err))
	}
	return nil
}

// userNamespaceHint explains a refusal: some systems allow user namespaces but no capabilities in them.
func userNamespaceHint(err error) string {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return " (user namespaces have no rights here: run as root, or sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
	}
	return ""
}

// childEnv returns the environment of the cluster's programs: only the variables that they need.
func childEnv() []string {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for _, name := range []string{"GOGC", "GOMEMLIMIT", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
