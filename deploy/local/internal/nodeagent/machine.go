// Package nodeagent is the part of a node beside the kubelet: it configures the process's new namespaces as a machine
// (mounts, network) and serves service addresses and DNS there. The kubelet itself, which links Kubernetes, is in the
// localkube command.
package nodeagent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"fairlead.dev/deploy/local/internal/cgroup"
	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/kubeproxy"
	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/supervise"
	"fairlead.dev/deploy/local/internal/svcproxy"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Env is the environment variable with the control process's Machine.
const Env = "LOCALKUBE_NODE"

// pluggedFD is the pipe that signals with one byte that eth0 exists.
const pluggedFD = 3

// Machine contains the configuration of a node.
type Machine struct {
	Config clusterapi.Config
	Node   clusterapi.Node
	Index  int // from 1
	Shim   string
	// Proxy is the implementation of Services: clusterapi.ProxyKube or clusterapi.ProxyUserspace.
	Proxy     string
	UserRange bool
	Cgroups   *cgroup.Tree // nil if containers cannot be limited
}

// Dir returns the node's disk.
func (m *Machine) Dir() string { return filepath.Join(m.Config.Dir, "nodes", m.Node.Name) }

// IP returns the node's address.
func (m *Machine) IP() string { return network.NodeIP(m.Index) }

// Boot reads the machine from the environment, waits for its network link and configures mounts and network.
func Boot() (*Machine, error) {
	var m Machine
	if err := json.Unmarshal([]byte(os.Getenv(Env)), &m); err != nil {
		return nil, fmt.Errorf("read machine: %w", err)
	}
	if err := os.Unsetenv(Env); err != nil {
		return nil, err
	}
	plugged := os.NewFile(pluggedFD, "plugged")
	if _, err := io.ReadFull(plugged, make([]byte, 1)); err != nil {
		return nil, fmt.Errorf("wait for network link: %w", err)
	}
	plugged.Close()
	if err := os.MkdirAll(m.Dir(), 0o755); err != nil {
		return nil, err
	}
	if err := m.mount(); err != nil {
		return nil, err
	}
	if err := unix.Sethostname([]byte(m.Node.Name)); err != nil {
		return nil, fmt.Errorf("set host name: %w", err)
	}
	if err := network.SetupNode(m.Index, m.localServices()); err != nil {
		return nil, fmt.Errorf("set up network: %w", err)
	}
	return &m, nil
}

// localServices returns the service addresses at which this process listens: with kube-proxy, the kernel serves all except
// the name server's.
func (m *Machine) localServices() string {
	if m.Proxy == clusterapi.ProxyKube {
		return network.ClusterDNS + "/32"
	}
	return network.ServiceCIDR
}

// mount mounts a private /proc, a writable /var/log and /run: the kubelet requires /var/log/containers.
func (m *Machine) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/var/log", "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount /var/log: %w", err)
	}
	if err := m.mountRun(); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return nil
}

// ServeServices serves service addresses, node ports and DNS until ctx ends. It returns after the start; the services appear
// when the API server answers.
func (m *Machine) ServeServices(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", components.Kubeconfig(m.Config.Dir, components.UserProxy))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	directory, err := svcproxy.NewDirectory(client)
	if err != nil {
		return err
	}
	directory.Start(ctx)
	if m.Proxy == clusterapi.ProxyKube {
		if err := m.startKubeProxy(ctx); err != nil {
			return err
		}
	}
	if m.Node.Yurthub != "" {
		if err := m.startYurthub(); err != nil {
			return err
		}
	}
	go func() {
		if err := directory.WaitForSync(ctx); err != nil {
			klog.ErrorS(err, "Services are not served")
			return
		}
		if m.Proxy != clusterapi.ProxyKube {
			go svcproxy.NewProxy(directory, true).Run(ctx)
		}
		if err := svcproxy.NewDNS(directory).Run(ctx, network.ClusterDNS+":53"); err != nil {
			klog.ErrorS(err, "DNS is not served")
		}
	}()
	return nil
}

// startKubeProxy runs kube-proxy as a process of the node, and restarts it when it ends.
func (m *Machine) startKubeProxy(ctx context.Context) error {
	if err := kubeproxy.SetupNode(ctx); err != nil {
		return fmt.Errorf("set up rules beside kube-proxy: %w", err)
	}
	p := supervise.New("/proc/self/exe", supervise.Spec{
		Name: clusterapi.KubeProxy, Args: append([]string{clusterapi.KubeProxy}, components.KubeProxy(&m.Config, m.Index, m.Node.Name)...),
		Env:     kubeproxy.Env(os.Environ()),
		LogFile: filepath.Join(clusterapi.LogDir(m.Config.Dir), m.Node.Name+"-"+clusterapi.KubeProxy+".log"),
		Died:    func(why error) { klog.ErrorS(why, "Restarting kube-proxy") },
	})
	p.Settle()
	return p.Start()
}
