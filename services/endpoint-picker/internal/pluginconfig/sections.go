package pluginconfig

import (
	"reflect"
	"slices"
	"strings"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/internal/scheduling/plugins"
)

// compileDataLayer compiles the scraping and the source of endpoints.
func (c *compiler) compileDataLayer() {
	path, spec := c.dataLayer()
	c.warnUnused(path, plugins.NoReplicaPlugin, "peerDiscovery", "discovery.peers", "crossReplica", "crossReplicaSyncerPluginRef",
		"crossReplicaSyncInterval", "crossReplicaPublishTimeout")
	c.compileSources(path+".sources", spec)
	c.compileDiscovery(path+".discovery", spec.Discovery)
}

// dataLayer returns the section and its path. The section may have its old name, with a warning.
func (c *compiler) dataLayer() (path string, spec *dataLayerSpec) {
	const old = "data"
	path, spec = "dataLayer", c.document.DataLayer
	switch {
	case c.document.Data != nil && spec != nil:
		c.Errorf(old, "it is an old name of %s, which is set too: keep only %s", path, path)
	case c.document.Data != nil:
		c.Warnf(old, "it is an old name: use %s", path)
		return old, c.document.Data
	case spec == nil:
		spec = &dataLayerSpec{}
	}
	return path, spec
}

// compileSources compiles the configured source, or the default one unless it is disabled.
func (c *compiler) compileSources(path string, spec *dataLayerSpec) {
	var source, extractor *plugin
	var read []int // of the sources
	for i, s := range spec.Sources {
		if !c.isIgnored(s.PluginRef) {
			read = append(read, i)
		}
	}
	switch {
	case len(read) > 1:
		c.Errorf(strictyaml.Indexed(path, read[1]), "there are %d sources: only one %s is read", len(spec.Sources),
			onlyName(plugins.SectionSources))
	case len(read) == 1:
		source, extractor = c.compileSource(strictyaml.Indexed(path, read[0]), spec.Sources[read[0]])
	case spec.InjectDefaults == nil || *spec.InjectDefaults:
		source, extractor = c.defaultOf(plugins.SectionSources), c.defaultOf(plugins.SectionExtractors)
	}
	if source != nil && extractor != nil {
		c.installPlugin(source, "")
		c.installPlugin(extractor, "")
	}
}

func (c *compiler) compileSource(path string, spec sourceSpec) (source, extractor *plugin) {
	source = c.onlyReference(path, spec.PluginRef, plugins.SectionSources)
	extractors := slices.DeleteFunc(slices.Clone(spec.Extractors), func(r referenceSpec) bool { return c.isIgnored(r.PluginRef) })
	if len(extractors) == 0 {
		return source, c.defaultOf(plugins.SectionExtractors)
	}
	if len(extractors) > 1 {
		c.Errorf(path+".extractors[1]", "there are %d extractors: only one %s is read", len(extractors),
			onlyName(plugins.SectionExtractors))
	}
	at := slices.Index(spec.Extractors, extractors[0])
	return source, c.onlyReference(strictyaml.Indexed(path+".extractors", at), extractors[0].PluginRef, plugins.SectionExtractors)
}

// onlyReference is reference for sections with a single type.
func (c *compiler) onlyReference(path, name string, section plugins.Section) *plugin {
	return c.sectionReference(path, name, section, ": only a "+onlyName(section)+" can be here")
}

// onlyName returns the names of a section's types, the default first.
func onlyName(section plugins.Section) string {
	var names []string
	for _, t := range plugins.Types() {
		switch {
		case t.Section != section:
		case t.Default:
			names = slices.Insert(names, 0, t.Name)
		default:
			names = append(names, t.Name)
		}
	}
	return strings.Join(names, " or a ")
}

// defaultOf returns the default plugin of a section.
func (c *compiler) defaultOf(section plugins.Section) *plugin {
	return c.standardPlugin(plugins.Defaults(section)[0])
}

// compileDiscovery compiles the file of endpoints. The source of endpoints is fixed until the process ends.
func (c *compiler) compileDiscovery(path string, spec *discoverySpec) {
	if spec != nil && (spec.Endpoints != nil || spec.PluginRef != "" || spec.Peers.IsEmpty()) {
		name := spec.PluginRef
		if spec.Endpoints != nil {
			path, name = path+".endpoints", spec.Endpoints.PluginRef
		}
		if p := c.onlyReference(path, name, plugins.SectionDiscovery); p != nil {
			c.installPlugin(p, path)
		}
	}
	switch previous := c.options.Previous; {
	case c.options.EndpointsGiven && c.config.Discovery != nil:
		c.Warnf(path, "it has no effect: the flags name the endpoints")
	case !c.options.EndpointsGiven && previous != nil && !reflect.DeepEqual(previous.Discovery, c.config.Discovery):
		c.Errorf(path, "the source of endpoints cannot change while the picker runs: undo the change, or restart the picker")
	}
}

const pathSaturation = "flowControl.saturationDetector"

// compileSaturation reads the detector from its field or, with a warning, from its old one.
func (c *compiler) compileSaturation() {
	c.warnUnused("flowControl", plugins.NoFlowControl, // as upstream does while its gate is off
		"defaultPriorityBand", "defaultNegativePriorityBand", "priorityBands", "usageLimitPolicyPluginRef", "enableEviction")
	path, spec := pathSaturation, (*detectorSpec)(nil)
	if flow := c.document.FlowControl; flow != nil {
		spec = flow.SaturationDetector
	}
	if old := c.document.SaturationDetector; old != nil {
		if spec != nil {
			c.Errorf("saturationDetector", "%s is set too: keep only that one", path)
			return
		}
		if len(old.parameterFields()) == 0 {
			c.Warnf("saturationDetector", "its new place is %s", path)
		}
		path, spec = "saturationDetector", old
	}
	p := c.referencedDetector(path, spec)
	if p == nil {
		return
	}
	if detector, ok := p.instance.(scheduling.Detector); ok {
		c.installPlugin(p, path)
		c.config.Saturation = detector
	}
}

// referencedDetector returns the referenced detector. The default one needs no declaration.
func (c *compiler) referencedDetector(path string, spec *detectorSpec) *plugin {
	standard := plugins.Defaults(plugins.SectionSaturation)[0]
	if spec == nil {
		return c.standardPlugin(standard)
	}
	if given := spec.parameterFields(); len(given) > 0 {
		return c.detectorWith(path, spec.PluginRef, standard, given)
	}
	if spec.PluginRef == "" || spec.PluginRef == standard.Name && c.declared[standard.Name] == nil {
		return c.standardPlugin(standard)
	}
	return c.sectionReference(path, spec.PluginRef, plugins.SectionSaturation, ": give a "+onlyName(plugins.SectionSaturation))
}

// detectorWith returns the default detector with the parameters that an old configuration has beside the reference.
func (c *compiler) detectorWith(path, reference string, kind plugins.Type, given map[string]strictyaml.Raw) *plugin {
	for _, p := range c.order {
		if p.kind.Name == kind.Name && reference == "" {
			reference = p.name
		}
	}
	if reference != "" {
		for _, field := range sortedKeys(given) {
			c.Errorf(path+"."+field, "it is a parameter of a plugin: give it in the parameters of %.100q, or leave it out", reference)
		}
		return nil
	}
	c.Warnf(path, "these are parameters of a %s: declare one with them in plugins, and refer to it in %s", kind.Name, pathSaturation)
	p := &plugin{name: kind.Name, path: path, flat: true, kind: kind, instance: kind.New(c.pluginEnvironment()), used: true}
	c.DecodeFields(path, given, p.instance)
	c.validatePlugin(p)
	return p
}

// warnUnused warns of fields of a section that have no effect.
func (c *compiler) warnUnused(section, reason string, fields ...string) {
	for _, field := range fields {
		if at := section + "." + field; c.HasField(at) {
			c.Warnf(at, "it has no effect: %s", reason)
		}
	}
}

// compileParsers makes the list of parsers, from its field or from an old one for a single parser.
func (c *compiler) compileParsers() {
	const path = "requestHandler.parsers"
	handler := c.document.RequestHandler
	if handler == nil {
		handler = &handlerSpec{}
	}
	if handler.PropagatePriority {
		c.Warnf("requestHandler.propagatePriority", "it has no effect: requests reach model servers unchanged")
	}
	for i, spec := range handler.Parsers {
		c.addParser(strictyaml.Indexed(path, i), spec.PluginRef)
	}
	c.addOldParser("requestHandler.parser", handler.Parser, len(handler.Parsers) > 0)
	c.addOldParser("parser", c.document.Parser, len(handler.Parsers) > 0 || handler.Parser != nil)
	if len(c.config.ParserNames) == 0 {
		for _, name := range api.AllParsers() {
			kind, _ := plugins.FindType(name)
			c.installPlugin(c.standardPlugin(kind), path)
		}
	}
	parsers, err := api.NewParsers(c.config.ParserNames...)
	if err != nil {
		c.Errorf(path, "%s", err) // unreachable: the parsers are known
	}
	c.config.Parsers = parsers
}

// addOldParser adds the parser of an old field for a single one.
func (c *compiler) addOldParser(path string, spec *referenceSpec, isSet bool) {
	switch {
	case spec == nil:
	case isSet:
		c.Errorf(path, "requestHandler.parsers, its new place, or another old one is set too: keep only that one")
	default:
		c.Warnf(path, "its new place is requestHandler.parsers, a list")
		c.addParser(path, spec.PluginRef)
	}
}

// addParser adds a parser. Parsers need no declaration.
func (c *compiler) addParser(path, name string) {
	var p *plugin
	if kind, known := plugins.FindType(name); known && kind.Section == plugins.SectionParsers && c.declared[name] == nil {
		p = c.standardPlugin(kind)
	} else {
		p = c.sectionReference(path, name, plugins.SectionParsers, ", which is not a parser")
	}
	if p != nil {
		c.installPlugin(p, path)
	}
}

// finishPlugins installs the plugins that need no reference, and warns of others without effect, because nothing refers to them.
func (c *compiler) finishPlugins() {
	for _, p := range c.order {
		switch {
		case p.isIgnored():
		case p.kind.Section == plugins.SectionNone:
			c.installPlugin(p, "")
		case !p.used:
			c.Warnf(p.path, "%.100q is not used: refer to it or leave it out", p.name)
		}
	}
}
