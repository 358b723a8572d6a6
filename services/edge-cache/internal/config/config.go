// Package config holds the flags of the cache.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/edge-cache/internal/allowlist"
)

// Config holds all flags.
type Config struct {
	HTTP     httpserver.Options
	Logging  logging.Options
	Pool     Pool
	Client   Client
	Upstream Upstream
	Data     Data
	Node     Node

	AddressFile string // to write the addresses of the listeners to; empty: none
}

// Membership is where the members of the pool come from.
type Membership string

const (
	Labels   Membership = "labels"
	NodePool Membership = "nodepool"
)

// Pool selects the nodes whose endpoints are shown.
type Pool struct {
	Name            string
	LabelKey        string
	Membership      Membership
	NodePoolVersion string
	Unlocated       string
}

// Client describes the ingress controller.
type Client struct {
	Profile        string
	Resources      []string
	Namespaces     []string
	IngressClass   string
	Secrets        []string
	Address        string
	CredentialsDir string
	NamespaceFile  string
	MaxWatches     int
}

// Upstream is the API server.
type Upstream struct {
	Server     string
	CAFile     string
	TokenFile  string
	Kubeconfig string
}

// Data is the durable state.
type Data struct {
	Dir     string
	KeyFile string
}

// Node is the node of the pod.
type Node struct {
	Name      string
	CRISocket string
	Probe     bool
}

const upstreamDir = "/var/run/secrets/fairlead.dev/upstream/"

// Default returns the defaults of all flags.
func Default() *Config {
	return &Config{
		HTTP: httpserver.DefaultOptions(), Logging: logging.DefaultOptions(),
		Pool: Pool{LabelKey: "apps.openyurt.io/nodepool", Membership: Labels, NodePoolVersion: "v1beta2", Unlocated: "keep"},
		Client: Client{ //nolint:gosec // a folder, no credentials
			Profile: "traefik", Address: "127.0.0.1:16443", CredentialsDir: "/var/run/secrets/fairlead.dev/credentials",
			NamespaceFile: upstreamDir + "namespace", MaxWatches: 256,
		},
		Upstream: Upstream{CAFile: upstreamDir + "ca.crt", TokenFile: upstreamDir + "token"},
		Data:     Data{Dir: "/var/lib/edge-cache"},
	}
}

// AddFlags binds all flags.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.HTTP.AddFlags(fs)
	c.Logging.AddFlags(fs)
	c.Pool.addFlags(fs)
	c.Client.addFlags(fs)
	fs.StringVar(&c.Upstream.Server, "upstream-server", c.Upstream.Server,
		"URL of the API server. It must be the API server itself, and not a cache such as Yurthub. Required without --kubeconfig.")
	fs.StringVar(&c.Upstream.CAFile, "upstream-ca-file", c.Upstream.CAFile,
		"File with the authority of the API server. It may change at run time.")
	fs.StringVar(&c.Upstream.TokenFile, "upstream-token-file", c.Upstream.TokenFile,
		"File with the token for the API server. It may change at run time.")
	fs.StringVar(&c.Upstream.Kubeconfig, "kubeconfig", c.Upstream.Kubeconfig,
		"Path of a kubeconfig file, instead of the other flags of the API server.")
	fs.StringVar(&c.Data.Dir, "data-dir", c.Data.Dir, "Directory of the durable state. Each instance needs its own.")
	fs.StringVar(&c.Data.KeyFile, "encryption-key-file", c.Data.KeyFile,
		"File with keys for the durable state: one per line, 32 bytes in base64. The first encrypts, all decrypt. Empty: no encryption.")
	fs.StringVar(&c.Node.CRISocket, "cri-socket", c.Node.CRISocket,
		"Unix socket of the node's container runtime. With it, addresses that pods lost in a reboot are replaced while the API server "+
			"is away. Empty: addresses stay.")
	fs.BoolVar(&c.Node.Probe, "probe-addresses", c.Node.Probe,
		"Without --cri-socket, look for pods that lost their addresses at the addresses that the node gives to pods, by their ports. A "+
			"pod can imitate another one: only for nodes whose pods all trust each other.")
	fs.StringVar(&c.AddressFile, "address-file", c.AddressFile,
		"File to write the addresses of all listeners to, as JSON by their names, for programs that start this one with port 0. Empty: "+
			"none.")
	fs.StringVar(&c.Node.Name, "node-name", c.Node.Name, "Name of the node of this pod. Required with --cri-socket and --probe-addresses.")
}

func (p *Pool) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.Name, "pool", p.Name, "Name of the node pool. Required.")
	fs.StringVar(&p.LabelKey, "pool-label-key", p.LabelKey, "Key of the node label whose value is the name of the pool.")
	fs.StringVar((*string)(&p.Membership), "membership", string(p.Membership),
		"Where the nodes of the pool come from: labels of Nodes, or the status of the NodePool object (nodepool).")
	fs.StringVar(&p.NodePoolVersion, "nodepool-version", p.NodePoolVersion, "Version of NodePool objects in group apps.openyurt.io.")
	fs.StringVar(&p.Unlocated, "unlocated-endpoints", p.Unlocated,
		"What happens to endpoints without a node name, such as those outside the cluster: keep or drop.")
}

func (c *Client) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Profile, "profile", c.Profile,
		"Ingress controller, which determines what it may read and write: "+strings.Join(allowlist.ProfileNames(), ", ")+".")
	fs.StringSliceVar(&c.Resources, "resources", c.Resources,
		"Resources that the controller may read in addition to the profile, as [group/]version/resource[@own|@cluster]. "+
			"@own: only in its own namespace. "+
			"@cluster: a custom resource without a namespace; needed with --namespaces only.")
	fs.StringSliceVar(&c.Namespaces, "namespaces", c.Namespaces, "Namespaces that the controller may read. Empty: all namespaces.")
	fs.StringVar(&c.IngressClass, "ingress-class", c.IngressClass,
		"IngressClass whose Ingresses name the Secrets that the controller may read. Empty: the name of the pool.")
	fs.StringSliceVar(&c.Secrets, "secrets", c.Secrets,
		"Secrets that the controller may read although no Ingress names them, as namespace/name.")
	fs.StringVar(&c.Address, "listen-address", c.Address, "Loopback address of the API for the controller.")
	fs.StringVar(&c.CredentialsDir, "credentials-dir", c.CredentialsDir,
		"Directory for ca.crt, namespace and token. The controller mounts it at /var/run/secrets/kubernetes.io/serviceaccount.")
	fs.StringVar(&c.NamespaceFile, "namespace-file", c.NamespaceFile, "File with the namespace of the pod.")
	fs.IntVar(&c.MaxWatches, "max-watches", c.MaxWatches, "Maximum number of open watches.")
}

// IngressClassName returns the IngressClass of the controller.
func (c *Config) IngressClassName() string {
	return cmp.Or(c.Client.IngressClass, c.Pool.Name)
}

// isServer reports whether text is the address of an API server. Plain text, with the token of the pod, goes only to the loopback
// interface.
func isServer(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && u.Hostname() == "127.0.0.1"
}

// Validate returns an error for each flag with an invalid value.
func (c *Config) Validate() error {
	errs := []error{c.HTTP.Validate(), c.Logging.Validate(), c.Pool.validate(), c.Client.validate()}
	if (c.Upstream.Server == "") == (c.Upstream.Kubeconfig == "") {
		errs = append(errs, errors.New("give either --upstream-server or --kubeconfig"))
	}
	if c.Upstream.Server != "" && !isServer(c.Upstream.Server) {
		errs = append(errs,
			fmt.Errorf("--upstream-server %q does not begin with https://, or has more than a host and a port", c.Upstream.Server))
	}
	if c.Data.Dir == "" {
		errs = append(errs, errors.New("--data-dir is empty"))
	}
	return errors.Join(append(errs, c.Node.validate()...)...)
}

func (n *Node) validate() (errs []error) {
	if (n.CRISocket != "" || n.Probe) && n.Name == "" {
		errs = append(errs, errors.New("--cri-socket and --probe-addresses need --node-name"))
	}
	if n.CRISocket != "" && n.Probe {
		errs = append(errs, errors.New("--probe-addresses has no effect with --cri-socket: the container runtime knows the addresses"))
	}
	return errs
}

func (p *Pool) validate() error {
	var errs []error
	if p.Name == "" {
		errs = append(errs, errors.New("--pool is empty"))
	}
	if problems := validation.IsValidLabelValue(p.Name); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--pool %q: %s", p.Name, problems[0]))
	}
	if problems := validation.IsQualifiedName(p.LabelKey); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--pool-label-key %q: %s", p.LabelKey, problems[0]))
	}
	if p.Membership != Labels && p.Membership != NodePool {
		errs = append(errs, fmt.Errorf("--membership %q is neither labels nor nodepool", p.Membership))
	}
	if problems := validation.IsDNS1035Label(p.NodePoolVersion); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--nodepool-version %q: %s", p.NodePoolVersion, problems[0]))
	}
	if p.Unlocated != "keep" && p.Unlocated != "drop" {
		errs = append(errs, fmt.Errorf("--unlocated-endpoints %q is neither keep nor drop", p.Unlocated))
	}
	return errors.Join(errs...)
}

func (c *Client) validate() error {
	var errs []error
	if _, err := allowlist.ForProfile(c.Profile, c.Resources); err != nil {
		errs = append(errs, fmt.Errorf("--profile, --resources: %w", err))
	}
	for _, ns := range c.Namespaces {
		if problems := validation.IsDNS1123Label(ns); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--namespaces %q: %s", ns, problems[0]))
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(c.Namespaces)))) != len(c.Namespaces) {
		errs = append(errs, errors.New("--namespaces names a namespace twice"))
	}
	for _, secret := range c.Secrets {
		namespace, name, found := strings.Cut(secret, "/")
		if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			errs = append(errs, fmt.Errorf("--secrets %q is not namespace/name", secret))
		}
	}
	errs = append(errs, validateLoopback(c.Address))
	if c.CredentialsDir == "" {
		errs = append(errs, errors.New("--credentials-dir is empty"))
	}
	if c.MaxWatches < 1 {
		errs = append(errs, fmt.Errorf("--max-watches %d is less than one", c.MaxWatches))
	}
	return errors.Join(errs...)
}

// validateLoopback refuses addresses that other pods can reach.
func validateLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--listen-address %q is not host:port: %w", address, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--listen-address %q is not a loopback address: only the controller in the same pod may reach the API", address)
	}
	return nil
}
