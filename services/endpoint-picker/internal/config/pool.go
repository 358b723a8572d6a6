package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/endpoint-picker/internal/discovery"
)

const (
	flagPoolName      = "pool-name"
	flagPoolNamespace = "pool-namespace"
	flagPoolGroup     = "pool-group"
	flagPool          = "pool"
	flagPickerService = "picker-service"
	flagMaxPools      = "max-pools"
	flagSelector      = "endpoint-selector"
	flagTargetPorts   = "endpoint-target-ports"
	flagEndpointsFile = "endpoints-file"
)

// maxTargetPorts is the limit of InferencePools.
const maxTargetPorts = 8

// maxPools is the maximum number of pools of a picker. A pool without endpoints takes less than 1 MiB.
const maxPools = 1000

// defaultMaxPools bounds what people who may create InferencePools take of the picker: each pool reads the metrics of its pods.
const defaultMaxPools = 64

// localTitle is the name of a pool without a cluster, as in metrics: wherever its servers are listed, its series stay the same.
const localTitle = "servers"

// Pool names the source of endpoints: exactly one of an InferencePool, several of them, those that refer to a Service, a
// selector of pods, a file, and URLs.
type Pool struct {
	Group       string
	Name        cache.ObjectName // the name is empty for the other sources
	Names       ObjectNames      // of several InferencePools
	Service     ObjectName       // in the endpointPickerRef of the InferencePools
	Max         int              // pools that refer to the Service
	Selector    Selector         // of pods in the namespace
	TargetPorts Ports            // of the selected pods
	File        string           // of endpoints, without a cluster
	Once        bool             // read the file at the start only
	Discovered  bool             // the configuration of the plugins names the file, not a flag
	Servers     Servers          // without a cluster
}

// String describes the pool for people.
func (p Pool) String() string {
	switch {
	case p.IsLocal():
		return localTitle
	case p.Selector.Selector != nil:
		return p.Name.Namespace + "/" + p.Selector.String()
	case len(p.Names) > 0:
		return p.Names.String()
	case p.Service.Name != "":
		return "pools of Service " + p.Service.String()
	}
	return p.Name.String()
}

func defaultPool() Pool {
	namespace := cmp.Or(os.Getenv("NAMESPACE"), "default") // of the pod
	return Pool{Group: discovery.PoolGroup, Name: cache.NewObjectName(namespace, ""), Max: defaultMaxPools}
}

func (p *Pool) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.Name.Name, flagPoolName, p.Name.Name,
		"Name of the InferencePool. Exactly one of --"+flagServers+", --pool-name, --"+flagPool+", --"+flagPickerService+", --"+
			flagSelector+" and --"+flagEndpointsFile+" is required.")
	fs.StringVar(&p.Name.Namespace, flagPoolNamespace, p.Name.Namespace,
		"Namespace of the InferencePool and its pods. Defaults to $NAMESPACE, then to default.")
	fs.StringVar(&p.Group, flagPoolGroup, p.Group, "API group of the InferencePool.")
	fs.Var(&p.Names, flagPool, "An InferencePool, by its name or namespace/name. Repeat the flag to serve several pools: the :authority "+
		"of a stream, the Service and port of a pool's endpointPickerRef, selects one of them.")
	fs.Var(&p.Service, flagPickerService, "The Service of this picker, by its name or namespace/name, to serve all InferencePools of its "+
		"namespace whose endpointPickerRef names it.")
	fs.IntVar(&p.Max, flagMaxPools, p.Max,
		fmt.Sprintf("Maximum number of InferencePools that --%s serves, 1 to %d. Older pools come first.",
			flagPickerService, maxPools))
	fs.Var(&p.Selector, flagSelector,
		"Label selector of the pods of the model servers, instead of an InferencePool. Examples: app=vllm, 'app in (a,b),!canary'.")
	fs.Var(&p.TargetPorts, flagTargetPorts, "Ports of the model servers in each selected pod: 1 to 8 ports, comma-separated.")
	fs.StringVar(&p.File, flagEndpointsFile, p.File,
		"File with the endpoints, for use without Kubernetes. Changes take effect without a restart.")
}

// HasSource reports whether the flags name a source of endpoints.
func (p *Pool) HasSource() bool {
	return p.Name.Name != "" || p.IsMultiPool() || p.Selector.Selector != nil || p.IsLocal()
}

// IsLocal reports whether the endpoints come from a file or from URLs, without a cluster.
func (p *Pool) IsLocal() bool { return p.File != "" || len(p.Servers.URLs) > 0 }

// IsMultiPool reports whether the picker serves the pools that streams select.
func (p *Pool) IsMultiPool() bool { return len(p.Names) > 0 || p.Service.Name != "" }

// MaxPools returns the maximum number of pools that the picker serves.
func (p *Pool) MaxPools() int {
	if len(p.Names) > 0 {
		return len(p.Names)
	}
	return p.Max
}

// addNamespaces adds the namespace to names without one.
func (p *Pool) addNamespaces() {
	for i := range p.Names {
		p.Names[i].Namespace = cmp.Or(p.Names[i].Namespace, p.Name.Namespace)
	}
	if p.Service.Name != "" {
		p.Service.Namespace = cmp.Or(p.Service.Namespace, p.Name.Namespace)
	}
}

// validateFlags checks the flags. The flags need not name a source if the configuration of the plugins may name one.
func (p *Pool) validateFlags(plugins Plugins) error {
	var given []string
	for _, flag := range []struct {
		flag  string
		given bool
	}{{flagServers, len(p.Servers.URLs) > 0}, {flagPoolName, p.Name.Name != ""}, {flagPool, len(p.Names) > 0},
		{flagPickerService, p.Service.Name != ""},
		{flagSelector, p.Selector.Selector != nil}, {flagEndpointsFile, p.File != ""}} {
		if flag.given {
			given = append(given, "--"+flag.flag)
		}
	}
	if len(given) == 0 && plugins.AtStart() {
		return nil
	}
	_, err := p.Servers.Parse()
	return errors.Join(p.validateGiven(given), err)
}

func (p *Pool) validateGiven(given []string) error {
	switch {
	case len(given) == 0:
		return fmt.Errorf("--%s is missing: give the name of the InferencePool to serve, or else --%s, --%s or --%s", flagPoolName,
			flagServers, flagSelector, flagEndpointsFile)
	case len(given) > 1:
		return fmt.Errorf("%s are mutually exclusive: give only one of them", strings.Join(given, " and "))
	case p.Selector.Selector != nil && len(p.TargetPorts) == 0:
		return fmt.Errorf("--%s is missing: give the ports of the pods that --%s selects", flagTargetPorts, flagSelector)
	case p.Selector.Selector == nil && len(p.TargetPorts) > 0:
		return fmt.Errorf("--%s has no effect with %s, which sets the ports: leave it out", flagTargetPorts, given[0])
	case !p.IsLocal() && p.Name.Namespace == "":
		return fmt.Errorf("--%s is empty: give the namespace of the InferencePool or the pods, or leave the flag out", flagPoolNamespace)
	case p.repeatedName() != "":
		return fmt.Errorf("--%s %s is given twice: leave one of them out", flagPool, p.repeatedName())
	case p.Group != discovery.PoolGroup:
		return fmt.Errorf("--%s %q is not supported: give %s, or leave the flag out", flagPoolGroup, p.Group, discovery.PoolGroup)
	}
	return p.validateMax(given[0])
}

func (p *Pool) validateMax(given string) error {
	switch {
	case p.Max < 1 || p.Max > maxPools:
		return fmt.Errorf("--%s is %d: give a number from 1 to %d", flagMaxPools, p.Max, maxPools)
	case p.Max != defaultMaxPools && p.Service.Name == "":
		return fmt.Errorf("--%s has no effect with %s: leave it out", flagMaxPools, given)
	}
	return nil
}

// ObjectNames are several names, each once. It implements pflag.Value.
type ObjectNames []ObjectName

// Set adds a name.
func (n *ObjectNames) Set(text string) error {
	var name ObjectName
	if err := name.Set(text); err != nil {
		return err
	}
	if len(*n) == maxPools {
		return fmt.Errorf("there are more than %d: use --%s", maxPools, flagPickerService)
	}
	*n = append(*n, name)
	return nil
}

// String returns the names, separated by commas.
func (n *ObjectNames) String() string {
	var names []string
	for i := range *n {
		names = append(names, (*n)[i].String())
	}
	return strings.Join(names, ",")
}

// Type names the value in help.
func (*ObjectNames) Type() string { return "namespace/name" }

// repeatedName returns a name that is given twice, or an empty name.
func (p *Pool) repeatedName() string {
	given := map[cache.ObjectName]bool{}
	for i := range p.Names {
		if given[p.Names[i].ObjectName] {
			return p.Names[i].String()
		}
		given[p.Names[i].ObjectName] = true
	}
	return ""
}

// Selector is a label selector. It implements pflag.Value; nil is none.
type Selector struct{ labels.Selector }

// Set parses a selector, which must not select everything.
func (s *Selector) Set(text string) error {
	parsed, err := labels.Parse(text)
	if err != nil {
		return fmt.Errorf("it is not a label selector such as app=vllm: %w", err)
	}
	if parsed.Empty() {
		return errors.New("it is empty and would select every pod: give one such as app=vllm")
	}
	s.Selector = parsed
	return nil
}

// String returns the selector in the format of Set.
func (s *Selector) String() string {
	if s == nil || s.Selector == nil {
		return ""
	}
	return s.Selector.String()
}

// Type names the value in help.
func (s *Selector) Type() string { return "selector" }

// Ports is a list of ports, each once. It implements pflag.Value.
type Ports []uint16

// Set parses a list.
func (p *Ports) Set(text string) error {
	var ports Ports
	for part := range strings.SplitSeq(text, ",") {
		port, err := strconv.ParseUint(strings.TrimSpace(part), 10, 16)
		switch {
		case err != nil || port == 0:
			return fmt.Errorf("%q is not a port: give ports from 1 to %d, separated by commas", part, maxPort)
		case slices.Contains(ports, uint16(port)):
			return fmt.Errorf("port %d is listed twice", port)
		}
		ports = append(ports, uint16(port))
	}
	if len(ports) > maxTargetPorts {
		return fmt.Errorf("it has %d ports: give at most %d", len(ports), maxTargetPorts)
	}
	*p = ports
	return nil
}

// String returns the list, separated by commas.
func (p *Ports) String() string {
	var parts []string
	for _, port := range *p {
		parts = append(parts, strconv.Itoa(int(port)))
	}
	return strings.Join(parts, ",")
}

// Type names the value in help.
func (p *Ports) Type() string { return "ports" }
