package settings

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Parse parses the configuration of this program. Unknown keys cause warnings, not errors, because a newer release may define them.
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
	Listener        string // sectionName; empty: all listeners that accept the route
}

// String returns the format that ParseGateway parses.
func (g GatewayRef) String() string {
	text := g.Namespace + "/" + g.Name
	if g.Listener != "" {
		text += "/" + g.Listener
	}
	return text
}

// ParseGateway parses namespace/name or namespace/name/listener.
func ParseGateway(text string) (GatewayRef, error) {
	parts := strings.Split(text, "/")
	valid := (len(parts) == 2 || len(parts) == 3) && len(validation.IsDNS1123Label(parts[0])) == 0
	for _, p := range parts[1:] {
		valid = valid && len(validation.IsDNS1123Subdomain(p)) == 0
	}
	if !valid {
		return GatewayRef{}, fmt.Errorf("%q is not a Gateway: use namespace/name or namespace/name/listener", text)
	}
	ref := GatewayRef{Namespace: parts[0], Name: parts[1]}
	if len(parts) == 3 {
		ref.Listener = parts[2]
	}
	return ref, nil
}

// isWithin reports whether a name equals a domain or is a subdomain of it.
func isWithin(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }
