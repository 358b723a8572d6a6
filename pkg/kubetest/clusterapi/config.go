// Package clusterapi is the contract between localkube, the embedded Kubernetes of deploy/local, and those who start
// and steer one: the tests (package cluster), the demo and localkube's own command line.
//
// Config is what a cluster is started with, Ready what it says once it stands, and Client steers it while it runs:
// HTTP on a unix socket in the cluster's folder. Outages made through it are on purpose, so they end only when asked to.
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

// Components of the control plane, by the names that Config.Args, Status and Client use.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet" // one in each node; only Config.Args knows it
)

const (
	// MaxNodes is how many nodes the address plan has room for.
	MaxNodes = 64
	// maxPods is how many pods a node has addresses for.
	maxPods = 250
)

// Config says what a cluster is made of. The zero value of a field means its default.
type Config struct {
	// Dir holds all state: certificates, etcd, logs, pods. Two clusters never share one.
	Dir string `json:"dir"`
	// Images is the image store that the nodes run from; it may be shared.
	Images string `json:"images,omitempty"`
	// ControlPlaneOnly leaves out controller manager, scheduler and nodes: etcd and the API server alone.
	ControlPlaneOnly bool `json:"controlPlaneOnly,omitempty"`
	// APIAddress is the host address of the API server; port 0 takes a free one.
	APIAddress string `json:"apiAddress,omitempty"`
	// Publish makes addresses inside the cluster reachable on the host.
	Publish []Publish `json:"publish,omitempty"`
	// Nodes are the machines; none means one node with defaults.
	Nodes []Node `json:"nodes,omitempty"`
	// Timings shorten how long Kubernetes takes to notice and to act on an outage.
	Timings Timings `json:"timings,omitempty"`
	// Args are further flags by component, put after ours, so that they win; for kubelet: fields of
	// KubeletConfiguration as name=value.
	Args map[string][]string `json:"args,omitempty"`
	// Audit writes every request to audit.log in Dir at level Metadata.
	Audit bool `json:"audit,omitempty"`
	// Verbosity is the components' -v.
	Verbosity int `json:"verbosity,omitempty"`
}

// Publish forwards TCP connections from Host, a host address (port 0 takes a free one), to Target, which is what
// Client.Dial takes: service.namespace:port or ip:port.
type Publish struct {
	Host   string `json:"host"`
	Target string `json:"target"`
}

// Node is one machine of the cluster.
type Node struct {
	Name   string            `json:"name,omitempty"`
	Zone   string            `json:"zone,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// CPUs, MemoryGiB and Pods are what the node pretends to have; nothing is limited by them but scheduling.
	CPUs      int `json:"cpus,omitempty"`
	MemoryGiB int `json:"memoryGiB,omitempty"`
	Pods      int `json:"pods,omitempty"`
	// Extended resources, for instance nvidia.com/gpu: "8".
	Extended map[string]string `json:"extended,omitempty"`
}

// Timings are how fast the cluster notices things. Defaults are Kubernetes' own, but for SyncFrequency.
type Timings struct {
	// LeaseDuration of a node; it is renewed every quarter of it. Default 40 s.
	LeaseDuration metav1.Duration `json:"leaseDuration,omitempty"`
	// MonitorPeriod is how often node health is looked at. Default 5 s.
	MonitorPeriod metav1.Duration `json:"monitorPeriod,omitempty"`
	// MonitorGracePeriod is how long a silent node stays Ready. Default 50 s.
	MonitorGracePeriod metav1.Duration `json:"monitorGracePeriod,omitempty"`
	// TolerationSeconds is how long pods stay on a node that is not ready or unreachable. Default 300.
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
	// SyncFrequency is how often a kubelet looks at changed ConfigMap volumes. Default 5 s.
	SyncFrequency metav1.Duration `json:"syncFrequency,omitempty"`
	// CrashBackOffMax caps the crash loop back-off. Default 5 min.
	CrashBackOffMax metav1.Duration `json:"crashBackOffMax,omitempty"`
}

// FastTimings see a dead node's pods replaced within 20 s.
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

// Complete fills in defaults and makes paths absolute.
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
		c.Nodes[i].complete(i)
	}
	c.Timings.complete()
	return c.Validate()
}

func (n *Node) complete(i int) {
	if n.Name == "" {
		n.Name = fmt.Sprintf("node-%d", i+1)
	}
	setDefault(&n.Zone, fmt.Sprintf("zone-%d", i+1))
	setDefault(&n.CPUs, 64)
	setDefault(&n.MemoryGiB, 256)
	setDefault(&n.Pods, maxPods)
}

func (t *Timings) complete() {
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

// Validate reports everything that is wrong with a completed Config, one line each.
func (c *Config) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("dir: name the folder that is to hold the cluster's state"))
	}
	if c.Images == "" && !c.ControlPlaneOnly {
		errs = append(errs, errors.New("images: name the image store (make images fills one)"))
	}
	return errors.Join(append(errs, c.validateNodes(), c.validateAddresses(), c.validateArgs())...)
}

func (c *Config) validateNodes() error {
	var errs []error
	if c.ControlPlaneOnly && len(c.Nodes) > 0 {
		errs = append(errs, errors.New("nodes: a cluster that is its control plane only has none"))
	}
	if len(c.Nodes) > MaxNodes {
		errs = append(errs, fmt.Errorf("nodes: %d asked for, there is room for %d", len(c.Nodes), MaxNodes))
	}
	seen := map[string]bool{}
	for _, n := range c.Nodes {
		if !nodeName.MatchString(n.Name) {
			errs = append(errs, fmt.Errorf("nodes: %q is not a name: lower-case letters, digits and dashes, at most 42", n.Name))
		}
		if seen[n.Name] {
			errs = append(errs, fmt.Errorf("nodes: two are called %q", n.Name))
		}
		seen[n.Name] = true
		if n.Pods < 1 || n.Pods > maxPods {
			errs = append(errs, fmt.Errorf("nodes: %s wants %d pods; a node has addresses for 1 to %d", n.Name, n.Pods, maxPods))
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
	known := []string{Etcd, APIServer, ControllerManager, Scheduler, Kubelet}
	for _, name := range slices.Sorted(maps.Keys(c.Args)) {
		if !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("args: no component is called %q, there are %s", name, strings.Join(known, ", ")))
		}
	}
	return errors.Join(errs...)
}

func hostPort(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("%q is not host:port", s)
	}
	return nil
}

// Ready is what localkube prints on stdout, as one line of JSON, once everything that was asked for is up.
type Ready struct {
	Dir        string   `json:"dir"`
	Kubeconfig string   `json:"kubeconfig"`
	APIAddress string   `json:"apiAddress"`
	Published  []string `json:"published,omitempty"` // host addresses, in the order of Config.Publish
	Seconds    float64  `json:"seconds"`             // since the launcher's start
}

// KubeconfigFile is where the administrator's kubeconfig is below a cluster's folder.
func KubeconfigFile(dir string) string { return filepath.Join(dir, "pki", "admin.kubeconfig") }

// LogDir is where the components and nodes write their logs.
func LogDir(dir string) string { return filepath.Join(dir, "log") }

// AuditFile is where the audit log is, when asked for.
func AuditFile(dir string) string { return filepath.Join(dir, "log", "audit.log") }
