package discovery

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// maxFileBytes is the maximum size of the file.
const maxFileBytes = 1 << 20

const (
	defaultNamespace = "default"
	maxName          = 253 // as in Kubernetes
	maxPort          = 65535
)

// document is the content of the file.
type document struct {
	Endpoints *[]entry `yaml:"endpoints"`
}

// entry is an endpoint in the file.
type entry struct {
	Name        *scalar            `yaml:"name"`
	Namespace   *scalar            `yaml:"namespace"`
	Address     *scalar            `yaml:"address"`
	Port        *scalar            `yaml:"port"`
	MetricsPort *scalar            `yaml:"metricsPort"`
	MetricsHost *scalar            `yaml:"metricsHost"` // "address:port", as in llm-d's files
	Labels      map[string]*scalar `yaml:"labels"`
}

// scalar is a value as it is written: 007 and true are texts, too.
type scalar string

// UnmarshalText sets the value.
func (s *scalar) UnmarshalText(text []byte) error {
	*s = scalar(text)
	return nil
}

// parseFile reads a file completely or returns an error that names every problem with its line. The endpoints are sorted by
// address.
func parseFile(data []byte) ([]endpoint.Description, error) {
	parsed, err := strictyaml.Parse(data, strictyaml.Options{MaxBytes: maxFileBytes, Aliases: true,
		Empty: "without endpoints, give endpoints: []"})
	if err != nil {
		return nil, err
	}
	p := parser{Document: parsed, names: map[string]string{}, addresses: map[netip.AddrPort]string{}}
	var d document
	parsed.Decode(&d)
	switch {
	case d.Endpoints != nil:
		for i := range *d.Endpoints {
			p.addEntry(strictyaml.Indexed("endpoints", i), &(*d.Endpoints)[i])
		}
	case parsed.OK():
		p.Errorf("endpoints", "it is missing: without endpoints, give an empty list")
	}
	if err := parsed.AllProblems(); err != nil {
		return nil, err
	}
	slices.SortFunc(p.endpoints, func(a, b endpoint.Description) int { return a.Address.Compare(b.Address) })
	return p.endpoints, nil
}

// parser collects endpoints and problems.
type parser struct {
	*strictyaml.Document

	endpoints []endpoint.Description
	names     map[string]string         // and their paths
	addresses map[netip.AddrPort]string // and their paths
}

// addEntry reads one endpoint.
func (p *parser) addEntry(path string, e *entry) {
	if p.IsInvalid(path) {
		return // it is not a mapping
	}
	d := endpoint.Description{Labels: p.parseLabels(path+".labels", e.Labels)}
	d.Pod = p.parseName(path+".name", e.Name)
	d.Namespace = defaultNamespace
	if e.Namespace != nil || p.HasField(path+".namespace") {
		d.Namespace = p.parseName(path+".namespace", e.Namespace)
	}
	d.Address = netip.AddrPortFrom(p.parseAddress(path+".address", e.Address), p.parsePort(path+".port", e.Port))
	d.MetricsPort = p.metricsPort(path, e, d.Address.Addr())
	if d.Pod == "" || d.Namespace == "" || !d.Address.IsValid() || d.Address.Port() == 0 {
		return // it has its own problem
	}
	name := d.PodName()
	switch {
	case p.names[name] != "":
		p.Errorf(path, "endpoint %s is listed twice, first as %s", name, p.names[name])
	case p.addresses[d.Address] != "":
		p.Errorf(path, "address %s is listed twice, first as %s", d.Address, p.addresses[d.Address])
	default:
		p.names[name], p.addresses[d.Address] = path, path
		p.endpoints = append(p.endpoints, d)
	}
}

// requireText returns a required value.
func (p *parser) requireText(path string, value *scalar) string {
	switch {
	case p.IsInvalid(path):
		return "" // it is not a single value
	case value == nil || *value == "":
		p.Errorf(path, "it is missing")
		return ""
	}
	return string(*value)
}

// parseName reads a name, which must be suitable for logs and metrics.
func (p *parser) parseName(path string, value *scalar) string {
	text := p.requireText(path, value)
	odd := func(r rune) bool { return r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if len(text) > maxName || strings.ContainsFunc(text, odd) {
		p.Errorf(path, "%.60q is not a name: give at most %d characters, without spaces and slashes", text, maxName)
		return ""
	}
	return text
}

func (p *parser) parseAddress(path string, value *scalar) netip.Addr {
	text := p.requireText(path, value)
	if text == "" {
		return netip.Addr{}
	}
	bare := text
	if inner, bracketed := strings.CutPrefix(text, "["); bracketed && strings.HasSuffix(inner, "]") && strings.Contains(inner, ":") {
		bare = strings.TrimSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(bare)
	ip = ip.Unmap()
	if err != nil || !isHostAddress(ip) {
		p.Errorf(path, "%.60q is not the IP address of a host: give one such as 10.0.0.1 or fd00::1", text)
		return netip.Addr{}
	}
	return ip
}

func (p *parser) parsePort(path string, value *scalar) uint16 {
	text := p.requireText(path, value)
	if text == "" {
		return 0
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		p.Errorf(path, "%.60q is not a port: give one from 1 to %d", text, maxPort)
		return 0
	}
	return uint16(port)
}

// metricsPort reads the port of the metrics page; 0 if the entry has none.
func (p *parser) metricsPort(path string, e *entry, address netip.Addr) uint16 {
	switch {
	case e.MetricsHost != nil && e.MetricsPort != nil:
		p.Errorf(path+".metricsHost", "metricsPort is set, too: keep that one")
	case e.MetricsPort != nil:
		return p.parsePort(path+".metricsPort", e.MetricsPort)
	case e.MetricsHost != nil:
		text := p.requireText(path+".metricsHost", e.MetricsHost)
		host, err := netip.ParseAddrPort(text)
		if text != "" && (err != nil || host.Addr().Unmap() != address || host.Port() == 0) {
			p.Errorf(path+".metricsHost", "%.60q is not a port of the endpoint's address: give its port as metricsPort", text)
			return 0
		}
		return host.Port()
	}
	return 0
}

// parseLabels reads labels. Their values need no quotes, even numbers and true.
func (p *parser) parseLabels(path string, values map[string]*scalar) map[string]string {
	if len(values) == 0 {
		return nil
	}
	labels := make(map[string]string, len(values))
	for key, value := range values {
		switch {
		case key == "":
			p.Errorf(path, "a label has no name")
		case value == nil:
			p.Errorf(path+"."+key, "it has no value")
		default:
			labels[key] = string(*value)
		}
	}
	return labels
}
