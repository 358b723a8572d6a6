package endpointsfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// MaxBytes is the maximum size of the file.
const MaxBytes = 1 << 20

const (
	defaultNamespace = "default"
	maxName          = 253
	maxPort          = 65535
	maxProblems      = 10 // limit for one error
)

// Fields of the file.
const (
	fieldEndpoints = "endpoints"
	fieldName      = "name"
	fieldNamespace = "namespace"
	fieldAddress   = "address"
	fieldPort      = "port"
	fieldLabels    = "labels"
)

// Parse reads a file completely or returns an error that names every problem with its line. The endpoints are sorted by
// address.
func Parse(data []byte) ([]endpoint.Description, error) {
	root, err := decode(data)
	if err != nil {
		return nil, err
	}
	p := parser{names: map[string]int{}, addresses: map[netip.AddrPort]int{}}
	for _, item := range p.items(root) {
		p.add(item)
	}
	if len(p.problems) > maxProblems {
		more := len(p.problems) - maxProblems
		p.problems = append(p.problems[:maxProblems], fmt.Errorf("and %d more", more))
	}
	if err := errors.Join(p.problems...); err != nil {
		return nil, err
	}
	slices.SortFunc(p.found, func(a, b endpoint.Description) int { return a.Address.Compare(b.Address) })
	return p.found, nil
}

// decode returns the only document of the file.
func decode(data []byte) (*yaml.Node, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("the file has more than %d bytes", MaxBytes)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty: without endpoints, give endpoints: []")
	} else if err != nil {
		return nil, trimmed(err)
	}
	var second yaml.Node
	if err := decoder.Decode(&second); err == nil {
		return nil, fmt.Errorf("line %d: second document: give only one", second.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, trimmed(err)
	}
	return document.Content[0], nil
}

// trimmed removes the prefix of an error of the YAML parser, because the message already names the format.
func trimmed(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "yaml: ")) }

// parser collects endpoints and problems.
type parser struct {
	found     []endpoint.Description
	problems  []error
	names     map[string]int         // and their lines
	addresses map[netip.AddrPort]int // and their lines
}

func (p *parser) problem(n *yaml.Node, format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, args...)))
}

// items returns the list of endpoints.
func (p *parser) items(root *yaml.Node) []*yaml.Node {
	if root.Kind != yaml.MappingNode {
		p.problem(root, "the file is not a mapping: give a list named %s", fieldEndpoints)
		return nil
	}
	list := p.fields(root, fieldEndpoints)[fieldEndpoints]
	switch {
	case list == nil:
		p.problem(root, "%s is missing: without endpoints, give an empty list", fieldEndpoints)
	case list.Kind != yaml.SequenceNode:
		p.problem(list, "%s is not a list", fieldEndpoints)
	default:
		return list.Content
	}
	return nil
}

// fields returns the values of a mapping by name. Only the known names are allowed.
func (p *parser) fields(mapping *yaml.Node, known ...string) map[string]*yaml.Node {
	values := map[string]*yaml.Node{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key := resolve(mapping.Content[i])
		switch name := key.Value; {
		case key.Kind != yaml.ScalarNode || !slices.Contains(known, name):
			p.problem(key, "%q is not a known field: known are %s", name, strings.Join(known, ", "))
		case values[name] != nil:
			p.problem(key, "%s is listed twice", name)
		default:
			values[name] = resolve(mapping.Content[i+1])
		}
	}
	return values
}

// add reads one endpoint.
func (p *parser) add(item *yaml.Node) {
	item = resolve(item)
	if item.Kind != yaml.MappingNode {
		p.problem(item, "an endpoint is not a mapping of name, address and port")
		return
	}
	before := len(p.problems)
	values := p.fields(item, fieldName, fieldNamespace, fieldAddress, fieldPort, fieldLabels)
	d := endpoint.Description{Labels: p.labels(values[fieldLabels])}
	d.Pod = p.name(item, fieldName, values[fieldName])
	d.Namespace = defaultNamespace
	if values[fieldNamespace] != nil {
		d.Namespace = p.name(item, fieldNamespace, values[fieldNamespace])
	}
	ip, port := p.address(item, values[fieldAddress]), p.port(item, values[fieldPort])
	if len(p.problems) > before {
		return
	}
	d.Address = netip.AddrPortFrom(ip, port)
	p.unique(item, d)
}

// unique adds the endpoint unless its name or address is already in use.
func (p *parser) unique(item *yaml.Node, d endpoint.Description) {
	name := d.Namespace + "/" + d.Pod
	switch {
	case p.names[name] != 0:
		p.problem(item, "endpoint %s is listed twice, first in line %d", name, p.names[name])
	case p.addresses[d.Address] != 0:
		p.problem(item, "address %s is listed twice, first in line %d", d.Address, p.addresses[d.Address])
	default:
		p.names[name], p.addresses[d.Address] = item.Line, item.Line
		p.found = append(p.found, d)
	}
}

// text returns the value of a required field, unconverted.
func (p *parser) text(item *yaml.Node, field string, value *yaml.Node) (string, bool) {
	switch {
	case value == nil:
		p.problem(item, "%s is missing", field)
	case value.Kind != yaml.ScalarNode:
		p.problem(value, "%s is not a single value", field)
	case value.Value == "" || value.Tag == "!!null":
		p.problem(value, "%s is empty", field)
	default:
		return value.Value, true
	}
	return "", false
}

// name reads a name, which must be suitable for logs and metrics.
func (p *parser) name(item *yaml.Node, field string, value *yaml.Node) string {
	text, ok := p.text(item, field, value)
	if !ok {
		return ""
	}
	odd := func(r rune) bool { return r == '/' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if len(text) > maxName || strings.ContainsFunc(text, odd) {
		p.problem(value, "%s %q is not a name: give at most %d characters, without spaces and slashes", field, shortened(text), maxName)
		return ""
	}
	return text
}

func (p *parser) address(item, value *yaml.Node) netip.Addr {
	text, ok := p.text(item, fieldAddress, value)
	if !ok {
		return netip.Addr{}
	}
	bare := text
	if inner, bracketed := strings.CutPrefix(text, "["); bracketed && strings.HasSuffix(inner, "]") && strings.Contains(inner, ":") {
		bare = strings.TrimSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(bare)
	if err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
		p.problem(value, "address %q is not the IP address of a host: give one such as 10.0.0.1 or fd00::1", shortened(text))
		return netip.Addr{}
	}
	return ip.Unmap()
}

func (p *parser) port(item, value *yaml.Node) uint16 {
	text, ok := p.text(item, fieldPort, value)
	if !ok {
		return 0
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		p.problem(value, "port %q is not a port: give one from 1 to %d", shortened(text), maxPort)
		return 0
	}
	return uint16(port)
}

// labels reads labels. Their values need no quotes, even numbers and true.
func (p *parser) labels(value *yaml.Node) map[string]string {
	switch {
	case value == nil || value.Tag == "!!null":
		return nil
	case value.Kind != yaml.MappingNode:
		p.problem(value, "labels are not a mapping of names to values")
		return nil
	}
	labels := make(map[string]string, len(value.Content)/2)
	for i := 0; i+1 < len(value.Content); i += 2 {
		key, text := resolve(value.Content[i]), resolve(value.Content[i+1])
		_, twice := labels[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || key.Value == "" || key.Tag == "!!merge":
			p.problem(key, "a label has no name")
		case twice:
			p.problem(key, "label %s is listed twice", shortened(key.Value))
		case text.Kind != yaml.ScalarNode || text.Tag == "!!null":
			p.problem(text, "the value of label %s is not a single value", shortened(key.Value))
		default:
			labels[key.Value] = text.Value
		}
	}
	return labels
}

// resolve follows an alias. The file has only four levels, so aliases cannot make it grow.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// shortened limits text for a message.
func shortened(text string) string {
	const most = 60
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
