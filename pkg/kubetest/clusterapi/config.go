// Package clusterapi defines the API of localkube, the embedded Kubernetes of deploy/local. Its users are package cluster for
// tests, the demo and the localkube command line.
//
// Config configures a cluster. localkube prints Ready once the cluster is ready. Client controls a running cluster by HTTP over
// a Unix socket in the cluster directory. Outages that a Client causes last until a Client ends them.
package clusterapi

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Component names in Config.Args, Status and Client.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"    // one per node; valid only in Config.Args
	KubeProxy         = "kube-proxy" // one per node; valid only in Config.Args
)

// PoolLabel is OpenYurt's node label with the name of the node's pool.
const PoolLabel = "apps.openyurt.io/nodepool"

// Implementations of Services on nodes.
const (
	// ProxyKube is kube-proxy in nftables mode. It needs the program nft.
	ProxyKube = "kube-proxy"
	// ProxyUserspace is the proxy of localkube: it accepts a connection, and connects to one endpoint.
	ProxyUserspace = "userspace"
)

const (
	// MaxNodes is the maximum number of nodes; the address ranges of nodes and pods limit it.
	MaxNodes = 64
	// maxPods is the maximum number of pods per node; a node has a /24 of pod addresses.
	maxPods = 250
)

// Config configures a cluster. Zero values select defaults.
type Config struct {
	// Dir is the directory for all state: certificates, etcd, logs, pods. Clusters cannot share it.
	Dir string `json:"dir"`
	// Images is the directory of the image store. Clusters can share it.
	Images string `json:"images,omitempty"`
	// InsecureRegistries are registries, as host:port, from which nodes may pull in plain HTTP. Registries at loopback and private
	// addresses need no entry.
	InsecureRegistries []string `json:"insecureRegistries,omitempty"`
	// ControlPlaneOnly starts only etcd and the API server, without controller manager, scheduler and nodes.
	ControlPlaneOnly bool `json:"controlPlaneOnly,omitempty"`
	// APIAddress is the host address of the API server; port 0 selects a free port.
	APIAddress string `json:"apiAddress,omitempty"`
	// Publish forwards ports of the host to addresses inside the cluster.
	Publish []Publish `json:"publish,omitempty"`
	// Nodes are the nodes of the cluster. The default is one node with default values.
	Nodes []Node `json:"nodes,omitempty"`
	// ServiceProxy is ProxyKube or ProxyUserspace. The default is ProxyKube where it works, else ProxyUserspace.
	ServiceProxy string `json:"serviceProxy,omitempty"`
	// Timings configures how fast Kubernetes detects outages and reacts to them.
	Timings Timings `json:"timings,omitempty"`
	// Args are additional flags by component. They override the flags that localkube sets. For Kubelet: fields of
	// KubeletConfiguration in the form name=value.
	Args map[string][]string `json:"args,omitempty"`
	// APIServer is the path of another kube-apiserver, for example of an older Kubernetes. The default is the one that localkube links.
	APIServer string `json:"apiServer,omitempty"`
	// Audit logs every request at level Metadata; see AuditFile.
	Audit bool `json:"audit,omitempty"`
	// Verbosity is the -v flag of the components.
	Verbosity int `json:"verbosity,omitempty"`
}

// Publish forwards TCP connections from Host, an address on the host (port 0 selects a free port), to Target, an address in the
// format of Client.Dial: service.namespace:port or ip:port.
type Publish struct {
	Host   string `json:"host"`
	Target string `json:"target"`
}

// Node configures one node of the cluster.
type Node struct {
	Name   string            `json:"name,omitempty"`
	Zone   string            `json:"zone,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// CPUs, MemoryGiB and Pods are the capacity that the node reports. They limit scheduling, not processes.
	CPUs      int `json:"cpus,omitempty"`
	MemoryGiB int `json:"memoryGiB,omitempty"`
	Pods      int `json:"pods,omitempty"`
	// Extended resources, for example nvidia.com/gpu: "8".
	Extended map[string]string `json:"extended,omitempty"`
	// Yurthub is the path of OpenYurt's Yurthub. The kubelet then reaches the API server through it. The label apps.openyurt.io/nodepool
	// is required.
	Yurthub string `json:"yurthub,omitempty"`
}

// Timings configures detection of outages and changes. The defaults are those of Kubernetes, except for SyncFrequency.
type Timings struct {
	// LeaseDuration is the duration of a node lease, which the kubelet renews every quarter of it. Default 40 s.
	LeaseDuration metav1.Duration `json:"leaseDuration,omitempty"`
	// MonitorPeriod is the interval of node health checks. Default 5 s.
	MonitorPeriod metav1.Duration `json:"monitorPeriod,omitempty"`
	// MonitorGracePeriod is the time for which an unresponsive node stays Ready. Default 50 s.
	MonitorGracePeriod metav1.Duration `json:"monitorGracePeriod,omitempty"`
	// TolerationSeconds is the time for which pods stay on a node that is not ready or unreachable. Default 300.
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
	// SyncFrequency is the interval at which a kubelet updates ConfigMap volumes. Default 5 s.
	SyncFrequency metav1.Duration `json:"syncFrequency,omitempty"`
	// CrashBackOffMax is the maximum crash loop backoff. Default 5 min.
	CrashBackOffMax metav1.Duration `json:"crashBackOffMax,omitempty"`
}

// FastTimings returns timings at which the pods of a dead node are replaced within 20 s.
func FastTimings() Timings {
	seconds := int64(2)
	return Timings{
		LeaseDuration:      metav1.Duration{Duration: 4 * time.Second},
		MonitorPeriod:      metav1.Duration{Duration: time.Second},
		MonitorGracePeriod: metav1.Duration{Duration: 6 * time.Second},
		TolerationSeconds:  &seconds,
		SyncFrequency:      metav1.Duration{Duration: 2 * time.Second},
		CrashBackOffMax:    metav1.Duration{Duration: 2 * time.Second},
	}
}

// Complete sets defaults, makes paths absolute and validates the Config.
func (c *Config) Complete() error {
	for _, p := range []*string{&c.Dir, &c.Images} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("resolve %s: %w", *p, err)
		}
		*p = abs
	}
	if c.APIAddress == "" {
		c.APIAddress = "127.0.0.1:0"
	}
	if len(c.Nodes) == 0 && !c.ControlPlaneOnly {
		c.Nodes = []Node{{}}
	}
	for i := range c.Nodes {
		c.Nodes[i].completeNode(i)
	}
	c.Timings.completeTimings()
	return c.Validate()
}

func (n *Node) completeNode(i int) {
	if n.Name == "" {
		n.Name = fmt.Sprintf("node-%d", i+1)
	}
	setDefault(&n.Zone, fmt.Sprintf("zone-%d", i+1))
	setDefault(&n.CPUs, 64)
	setDefault(&n.MemoryGiB, 256)
	setDefault(&n.Pods, maxPods)
}

func (t *Timings) completeTimings() {
	setDefault(&t.LeaseDuration.Duration, 40*time.Second)
	setDefault(&t.MonitorPeriod.Duration, 5*time.Second)
	setDefault(&t.MonitorGracePeriod.Duration, 50*time.Second)
	setDefault(&t.SyncFrequency.Duration, 5*time.Second)
	if t.TolerationSeconds == nil {
		seconds := int64(300)
		t.TolerationSeconds = &seconds
	}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$`)

// Validate returns all errors of a completed Config, one line each.
func (c *Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("dir: required, set it to the directory for the state of the cluster"))
	}
	if c.Images == "" && !c.ControlPlaneOnly {
		errs = append(errs, errors.New("images: required, set it to the image store that `make local-images` creates"))
	}
	return errors.Join(append(errs, c.validateNodes(), c.validateAddresses(), c.validateArgs(), c.validateServiceProxy())...)
}

func (c *Config) validateNodes() error {
	var errs []error
	if c.ControlPlaneOnly && len(c.Nodes) > 0 {
		errs = append(errs, errors.New("nodes: must be empty if controlPlaneOnly is true"))
	}
	if len(c.Nodes) > MaxNodes {
		errs = append(errs, fmt.Errorf("nodes: got %d, the maximum is %d", len(c.Nodes), MaxNodes))
	}
	seen := map[string]bool{}
	for _, n := range c.Nodes {
		if !nodeName.MatchString(n.Name) {
			errs = append(errs, fmt.Errorf("nodes: invalid name %q: use at most 42 lowercase letters, digits and dashes, no dash first or last", n.Name))
		}
		if seen[n.Name] {
			errs = append(errs, fmt.Errorf("nodes: duplicate name %q", n.Name))
		}
		seen[n.Name] = true
		if n.Pods < 1 || n.Pods > maxPods {
			errs = append(errs, fmt.Errorf("nodes: %s: pods is %d, must be 1 to %d", n.Name, n.Pods, maxPods))
		}
		if n.Yurthub != "" && n.Labels[PoolLabel] == "" {
			errs = append(errs, fmt.Errorf("nodes: %s: yurthub needs the label %s with the name of the node pool", n.Name, PoolLabel))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validateAddresses() error {
	var errs []error
	if err := hostPort(c.APIAddress); err != nil {
		errs = append(errs, fmt.Errorf("apiAddress: %w", err))
	}
	for _, p := range c.Publish {
		if err := errors.Join(hostPort(p.Host), hostPort(p.Target)); err != nil {
			errs = append(errs, fmt.Errorf("publish: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validateArgs() error {
	var errs []error
	known := []string{Etcd, APIServer, ControllerManager, Scheduler, Kubelet, KubeProxy}
	for _, name := range slices.Sorted(maps.Keys(c.Args)) {
		if !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("args: unknown component %q: use one of %s", name, strings.Join(known, ", ")))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validateServiceProxy() error {
	if known := []string{"", ProxyKube, ProxyUserspace}; !slices.Contains(known, c.ServiceProxy) {
		return fmt.Errorf("serviceProxy: unknown proxy %q: use %s or %s", c.ServiceProxy, ProxyKube, ProxyUserspace)
	}
	return nil
}

func hostPort(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("%q is not host:port", s)
	}
	return nil
}

// Ready describes a running cluster. localkube prints it to stdout as one line of JSON once the cluster is ready.
type Ready struct {
	Dir        string   `json:"dir"`
	Kubeconfig string   `json:"kubeconfig"`
	APIAddress string   `json:"apiAddress"`
	Published  []string `json:"published,omitempty"` // host addresses, in the order of Config.Publish
	Seconds    float64  `json:"seconds"`             // startup time since the launcher started
}

// KubeconfigFile returns the path of the administrator's kubeconfig in a cluster directory.
func KubeconfigFile(dir string) string { return filepath.Join(dir, "pki", "admin.kubeconfig") }

// StaticPodsDir returns the directory of the manifests of a node's static pods, which its kubelet reads.
func StaticPodsDir(dir, node string) string { return filepath.Join(dir, "nodes", node, "manifests") }

// LogDir returns the directory of the component and node logs.
func LogDir(dir string) string { return filepath.Join(dir, "log") }

// AuditFile returns the path of the audit log, which exists if Config.Audit is set.
func AuditFile(dir string) string { return filepath.Join(dir, "log", "audit.log") }
