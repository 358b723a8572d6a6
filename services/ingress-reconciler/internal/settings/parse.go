package settings

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/pkg/strictyaml"
)

// maxBytes is the limit of a ConfigMap.
const maxBytes = 1 << 20

// Parse parses the configuration of this program. It returns all problems of the text.
func Parse(text []byte) (*Document, error) {
	parsed, err := parseText(text)
	if err != nil {
		return nil, err
	}
	return decodeDocument(parsed, "")
}

// ParseFile parses a file with the configuration, or with values of the Helm chart, which contain the configuration, as an object or
// as a text, in key config.
func ParseFile(text []byte) (*Document, error) {
	parsed, err := parseText(text)
	if err != nil {
		return nil, err
	}
	below := parsed.FieldOf(Key)
	if inner, ok := below.Text(); ok {
		return Parse([]byte(inner))
	}
	if below.IsSet() {
		return decodeDocument(parsed, Key)
	}
	return decodeDocument(parsed, "")
}

func parseText(text []byte) (*strictyaml.Document, error) {
	parsed, err := strictyaml.Parse(text, strictyaml.Options{MaxBytes: maxBytes, Aliases: true})
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return parsed, nil
}

// decodeDocument decodes a field of a text; the whole text, if the field is empty.
func decodeDocument(text *strictyaml.Document, field string) (*Document, error) {
	d := &Document{}
	text.DecodeAt(field, text.FieldOf(field), d)
	d.normalize()
	for i := range d.Overrides {
		d.Overrides[i].normalize()
	}
	d.validate(text.Checker(field))
	if err := text.AllProblems(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return d, nil
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
