package pickerconfig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// plugin is a declared or a default plugin.
type plugin struct {
	name       string
	kind       string
	path       string // of its declaration
	parameters parameters
	used       bool
}

// compiler converts a document to a Config.
type compiler struct {
	reader

	options  Options
	kinds    map[string]func() parameters
	document document
	declared map[string]*plugin
	order    []*plugin // as declared
	headers  map[string]bool
	scorers  int    // in the profile
	picker   string // of the profile
	parsers  []string
	made     Config
	written  written
}

// Load reads a configuration. Its error is a LoadError.
func Load(text []byte, o Options) (*Config, error) {
	c := newCompiler(o)
	node := c.parse(text)
	if node != nil {
		c.read("", node, &c.document)
		c.compile()
	}
	if len(c.problems) > 0 {
		sortByLine(c.problems)
		return nil, LoadError(c.problems)
	}
	sum := sha256.Sum256(text)
	c.made.Hash = hex.EncodeToString(sum[:6])
	return c.finish()
}

// Default returns the default configuration: requests go to the endpoint with the earliest expected first token.
func Default(o Options) *Config {
	made, err := Load([]byte(defaultText), o)
	if err != nil {
		panic(fmt.Sprintf("default configuration: %v", err)) // tests load it
	}
	made.Hash = "default"
	return made
}

func newCompiler(o Options) *compiler {
	return &compiler{
		reader: reader{places: map[string]place{}}, options: o, kinds: kinds(o),
		declared: map[string]*plugin{}, headers: map[string]bool{},
	}
}

// compile compiles the document, part by part. Problems of one part do not hide those of another.
func (c *compiler) compile() {
	c.checkHead()
	c.checkGates()
	c.declare()
	c.compileDataLayer() // before profiles, which refer to metrics
	c.compileProfile()
	c.compileSaturation()
	c.compileParsers()
	c.compilePrefix()
	c.warnOfUnused()
}

func (c *compiler) checkHead() {
	switch c.document.APIVersion {
	case apiVersion, legacyAPIVersion:
	case "":
		c.errorf("apiVersion", "it is missing: give %s", apiVersion)
	default:
		c.errorf("apiVersion", "%.100q is not known: give %s", c.document.APIVersion, apiVersion)
	}
	if c.document.Kind != kindName {
		c.errorf("kind", "%.100q is not %s", c.document.Kind, kindName)
	}
}

// gates are the feature gates of upstream, and their required values. The empty text accepts both.
var gates = map[string]string{
	"flowControl":                  insteadFlow,
	"haPopulateNonLeaderDatastore": "",
	"dataLayer":                    "",
	"prepareDataPlugins":           "",
	"experimentalDatalayerWithHighAvailability": "",
}

func (c *compiler) checkGates() {
	for i, gate := range c.document.FeatureGates {
		at := indexed("featureGates", i)
		name, on, err := parseGate(gate)
		reason, known := gates[name]
		switch {
		case err != nil:
			c.errorf(at, "%v", err)
		case !known:
			c.errorf(at, "unknown feature gate %.100q: %s", name, meant(name, sortedKeys(gates)))
		case reason != "" && on:
			c.errorf(at, "this picker has no %s: %s", name, reason)
		case reason == "":
			c.warnf(at, "%s has no effect: leave it out", name)
		}
	}
}

// declare reads the plugins and their parameters, then validates them, because they may refer to each other.
func (c *compiler) declare() {
	for i, spec := range c.document.Plugins {
		path := indexed("plugins", i)
		if spec.Type == "" {
			c.errorf(path, "its type is missing")
			continue
		}
		p := &plugin{name: cmp.Or(spec.Name, spec.Type), kind: c.kind(path+".type", spec.Type), path: path, parameters: &none{}}
		if other, twice := c.declared[p.name]; twice {
			c.errorf(path, "another plugin %.100q exists, %s: rename one of them", p.name, other.path)
			continue
		}
		c.declared[p.name], c.order = p, append(c.order, p)
		if p.kind == "" {
			continue
		}
		if _, known := c.kinds[p.name]; known && p.kind != p.name {
			c.errorf(path, "%s is the name of another type: rename it", p.name)
		}
		p.parameters = c.kinds[p.kind]()
		if spec.Parameters.node != nil {
			c.read(path+".parameters", spec.Parameters.node, p.parameters)
		}
	}
	for _, p := range c.order {
		p.parameters.check(c.checker(p))
	}
}

func (c *compiler) checker(p *plugin) checker {
	return checker{compiler: c, path: p.path + ".parameters"}
}

// reference returns the plugin with a name, or nil after a problem. An invalid plugin already has its own problem.
func (c *compiler) reference(path, name string) *plugin {
	p, ok := c.declared[name]
	switch {
	case name == "":
		c.errorf(path, "its pluginRef is missing")
		return nil
	case !ok:
		hint := "declare it in plugins"
		if near := nearest(name, sortedKeys(c.declared)); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		c.errorf(path+".pluginRef", "unknown plugin %.100q: %s", name, hint)
		return nil
	case p.kind == "":
		return nil
	}
	p.used = true
	return p
}

// standard returns a plugin that exists without a declaration.
func (c *compiler) standard(kind string) *plugin {
	if p, ok := c.declared[kind]; ok && p.kind == kind {
		p.used = true
		return p
	}
	p := &plugin{name: kind, kind: kind, parameters: c.kinds[kind](), used: true}
	p.parameters.check(c.checker(p))
	return p
}

// finish sets the fields that depend on the other parts.
func (c *compiler) finish() (*Config, error) {
	sortByLine(c.warnings)
	c.made.Warnings = c.warnings
	c.made.Headers = sortedKeys(c.headers)
	c.made.Profile.SetEstimates(c.made.Saturation)
	summary, err := c.written.text()
	if err != nil {
		return nil, fmt.Errorf("write summary of configuration: %w", err)
	}
	c.made.summary = summary
	return &c.made, nil
}

// staleness is the first filter of every profile.
func (c *compiler) staleness() scheduling.Filter {
	return scheduling.StalenessFilter{After: c.options.StaleAfter}
}
