package settings

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Parse reads a configuration of our own. Keys that nobody knows are warnings: a newer release may know them.
func Parse(text []byte) (d *Document, warnings []string, err error) {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, nil, fmt.Errorf("parse configuration: %w", err)
	}
	d = &Document{}
	unknown, err := kjson.UnmarshalStrict(raw, d, kjson.DisallowUnknownFields)
	if err != nil {
		return nil, nil, fmt.Errorf("parse configuration: %w", err)
	}
	for _, e := range unknown {
		warnings = append(warnings, e.Error())
	}
	d.normalize()
	for i := range d.Overrides {
		d.Overrides[i].normalize()
	}
	if err := d.validate(); err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	return d, warnings, nil
}

// GatewayRef names a Gateway, or one of its listeners.
type GatewayRef struct {
	Namespace, Name string
	Listener        string // its sectionName; empty: all that fit
}

// String returns what ParseGateway reads.
func (g GatewayRef) String() string {
	text := g.Namespace + "/" + g.Name
	if g.Listener != "" {
		text += "/" + g.Listener
	}
	return text
}

// ParseGateway reads namespace/name, or namespace/name/listener.
func ParseGateway(text string) (GatewayRef, error) {
	parts := strings.Split(text, "/")
	valid := (len(parts) == 2 || len(parts) == 3) && len(validation.IsDNS1123Label(parts[0])) == 0
	for _, p := range parts[1:] {
		valid = valid && len(validation.IsDNS1123Subdomain(p)) == 0
	}
	if !valid {
		return GatewayRef{}, fmt.Errorf("%q is not a Gateway: give namespace/name, or namespace/name/listener", text)
	}
	ref := GatewayRef{Namespace: parts[0], Name: parts[1]}
	if len(parts) == 3 {
		ref.Listener = parts[2]
	}
	return ref, nil
}

// Inherited is what OME's ConfigMap says.
type Inherited struct {
	Values

	DisableIngressCreation   bool                         `json:"disableIngressCreation"` // OME makes no routes by itself
	NamespaceIngressGateways map[string]NamespaceGateways `json:"namespaceIngressGateways,omitempty"`
}

// ParseInherited reads the key ingress of OME's ConfigMap as OME does: JSON, its keys in any case. What only OME uses may be
// anything. A domain within the cluster is what OME ships where nobody has set one: it counts as none.
func ParseInherited(text []byte, clusterDomain string) (*Inherited, error) {
	in := &Inherited{}
	if err := json.Unmarshal(text, in); err != nil {
		return nil, fmt.Errorf("parse OME's configuration of ingress: %w", err)
	}
	in.Strategy = "" // it knows none
	in.normalize()
	local := func(domain string) bool { return within(domain, "svc."+clusterDomain) }
	if d := in.IngressDomain; d != nil && local(*d) {
		in.IngressDomain = nil
	}
	for _, g := range in.NamespaceIngressGateways {
		if g.Primary != nil && local(g.Primary.IngressDomain) {
			g.Primary.IngressDomain = ""
		}
	}
	return in, nil
}

// within reports whether a name is a domain or below it.
func within(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }
