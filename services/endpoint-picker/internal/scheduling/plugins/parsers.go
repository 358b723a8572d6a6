package plugins

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

func parserType(name string) Type {
	return Type{Name: name, Section: SectionParsers, New: withDefaults(parser{name: name})}
}

// parser is one of the parsers of package api.
type parser struct {
	noParameters

	name string
}

// ApplyTo appends the parser to the list.
func (p *parser) ApplyTo(b *Builder) {
	switch {
	case slices.Contains(b.Parts.ParserNames, p.name):
		b.Reference.Errorf("pluginRef", "%s is listed twice: keep one", p.name)
	case slices.Contains(b.Parts.ParserNames, api.ParserPassthrough):
		b.Reference.Errorf("pluginRef", "%s is never used: %s accepts everything, so put it last", p.name, api.ParserPassthrough)
	default:
		b.Parts.ParserNames = append(b.Parts.ParserNames, p.name)
	}
}
