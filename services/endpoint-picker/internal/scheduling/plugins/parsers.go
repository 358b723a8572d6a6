package plugins

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

var (
	anthropicParserType   = parserType(api.ParserAnthropic)
	openAIParserType      = parserType(api.ParserOpenAI)
	passthroughParserType = parserType(api.ParserPassthrough)
	sglangParserType      = parserType(api.ParserSGLang)
	vllmGRPCParserType    = parserType(api.ParserVLLMGRPC)
	vllmParserType        = parserType(api.ParserVLLM)
)

func parserType(name string) Type {
	return Type{Name: name, Section: SectionParsers, New: func(Environment) Plugin { return &parser{name: name} }}
}

// DefaultParsers returns the parsers of a configuration that lists none, in their order. Parsers need no declaration.
func DefaultParsers() []Type {
	var list []Type
	for _, name := range api.AllParsers() {
		list = append(list, parserType(name))
	}
	return list
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
