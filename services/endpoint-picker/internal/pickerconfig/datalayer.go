package pickerconfig

import (
	"slices"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

const concurrencyDetector = "concurrency-detector"

// compileDataLayer compiles the scraping and the source of endpoints.
func (c *compiler) compileDataLayer() {
	spec := c.document.DataLayer
	if spec == nil {
		spec = &dataLayerSpec{}
	}
	for _, field := range []string{"peerDiscovery", "crossReplicaSyncerPluginRef", "crossReplicaSyncInterval"} {
		if c.has("dataLayer." + field) {
			c.warnf("dataLayer."+field, "it has no effect: replicas see each other's requests in scraped metrics")
		}
	}
	if len(spec.Sources) > 1 {
		c.errorf("dataLayer.sources[1]", "there are %d sources: only one %s is read", len(spec.Sources), metricsDataSource)
		return
	}
	source, extractor := c.standardSource(spec)
	if len(spec.Sources) == 1 {
		source, extractor = c.source(spec.Sources[0])
	}
	c.compileScraping(source, extractor)
	c.compileDiscovery(spec.Discovery)
	if spec.InjectDefaults != nil && !*spec.InjectDefaults {
		c.written.noDefaults()
	}
}

// standardSource returns the default source and extractor, unless they are disabled.
func (c *compiler) standardSource(spec *dataLayerSpec) (source, extractor *plugin) {
	if len(spec.Sources) > 0 || spec.InjectDefaults != nil && !*spec.InjectDefaults {
		return nil, nil
	}
	return c.standard(metricsDataSource), c.standard(coreMetricsExtractor)
}

// source resolves a configured source.
func (c *compiler) source(spec sourceSpec) (source, extractor *plugin) {
	const path = "dataLayer.sources[0]"
	source = c.kindOf(path, spec.PluginRef, metricsDataSource)
	if len(spec.Extractors) == 0 {
		return source, c.standard(coreMetricsExtractor)
	}
	if len(spec.Extractors) > 1 {
		c.errorf(path+".extractors[1]", "there are %d extractors: only one %s is read", len(spec.Extractors), coreMetricsExtractor)
	}
	return source, c.kindOf(path+".extractors[0]", spec.Extractors[0].PluginRef, coreMetricsExtractor)
}

// kindOf is reference for a plugin of a required kind.
func (c *compiler) kindOf(path, name, kind string) *plugin {
	p := c.reference(path, name)
	if p != nil && p.kind != kind {
		c.errorf(path+".pluginRef", "%.100q is of type %s: only a %s can be here", name, p.kind, kind)
		return nil
	}
	return p
}

func (c *compiler) compileScraping(source, extractor *plugin) {
	s := &c.made.Scraping
	s.EngineLabel, s.DefaultEngine = engineLabel, defaultEngine
	if source == nil || extractor == nil {
		return
	}
	if p, ok := source.parameters.(*sourceParameters); ok {
		s.Enabled, s.Source = true, p.source()
	}
	if p, ok := extractor.parameters.(*extractorParameters); ok {
		s.EngineLabel, s.DefaultEngine, s.Engines = p.EngineLabelKey, p.DefaultEngine, p.EngineConfigs
	}
	c.written.source(source, extractor)
}

func (c *compiler) compileDiscovery(spec *referenceSpec) {
	if spec == nil {
		return
	}
	p := c.kindOf("dataLayer.discovery", spec.PluginRef, "file-discovery")
	if p == nil {
		return
	}
	if file, ok := p.parameters.(*fileDiscoveryParameters); ok {
		c.made.Discovery = &FileDiscovery{Path: file.Path, Watch: file.WatchFile}
	}
	c.written.discovery(p)
}

// compileSaturation reads the detector from its field or, with a warning, from its old one.
func (c *compiler) compileSaturation() {
	c.checkFlowControl()
	path, spec := "flowControl.saturationDetector", (*referenceSpec)(nil)
	if flow := c.document.FlowControl; flow != nil {
		spec = flow.SaturationDetector
	}
	if old := c.document.SaturationDetector; old != nil {
		if spec != nil {
			c.errorf("saturationDetector", "%s is set too: keep only that one", path)
			return
		}
		c.warnf("saturationDetector", "its new place is %s", path)
		path, spec = "saturationDetector", old
	}
	p := c.saturationDetector(path, spec)
	if p == nil {
		return
	}
	made, ok := p.parameters.(detector)
	if !ok {
		c.errorf(path+".pluginRef", "%.100q is of type %s: give a %s or a %s", p.name, p.kind, utilizationDetector, concurrencyDetector)
		return
	}
	c.made.Saturation = made.detector()
	c.written.saturation(p)
}

func (c *compiler) saturationDetector(path string, spec *referenceSpec) *plugin {
	if spec == nil || spec.PluginRef == "" || spec.PluginRef == utilizationDetector {
		return c.standard(utilizationDetector)
	}
	return c.reference(path, spec.PluginRef)
}

// checkFlowControl warns of unused settings, as upstream does while its gate is off.
func (c *compiler) checkFlowControl() {
	for _, field := range []string{
		"maxBytes", "maxRequests", "defaultRequestTTL", "noEndpointRequestTTL", "defaultPriorityBand", "defaultNegativePriorityBand", "priorityBands",
		"usageLimitPolicyPluginRef", "enableEviction",
	} {
		if c.has("flowControl." + field) {
			c.warnf("flowControl."+field, "it has no effect: %s", insteadFlow)
		}
	}
}

// compileParsers makes the list of parsers, from its field or from the old one for a single parser.
func (c *compiler) compileParsers() {
	path, specs := "requestHandler.parsers", []referenceSpec(nil)
	if c.document.RequestHandler != nil {
		specs = c.document.RequestHandler.Parsers
	}
	if old := c.document.Parser; old != nil {
		if len(specs) > 0 {
			c.errorf("parser", "%s are set too: keep only those", path)
			return
		}
		c.warnf("parser", "its new place is %s", path)
		specs = []referenceSpec{*old}
	}
	if len(specs) == 0 {
		for _, parser := range api.AllParsers() {
			specs = append(specs, referenceSpec{PluginRef: parser})
		}
	}
	for i, spec := range specs {
		at := indexed(path, i)
		if c.document.Parser != nil {
			at = "parser"
		}
		c.addParser(at, spec.PluginRef)
	}
	parsers, err := api.NewParsers(c.parsers...)
	if err != nil {
		c.errorf(path, "%s", err) // unreachable: the parsers are known
	}
	c.made.Parsers = parsers
}

// addParser adds a parser. Parsers need not be declared.
func (c *compiler) addParser(path, name string) {
	var p *plugin
	if _, declared := c.declared[name]; !declared && slices.Contains(api.AllParsers(), name) {
		p = c.standard(name)
	} else if p = c.reference(path, name); p == nil {
		return
	}
	parser := p.kind
	if !slices.Contains(api.AllParsers(), parser) {
		c.errorf(path+".pluginRef", "%.100q is of type %s, which is not a parser", name, p.kind)
		return
	}
	for _, other := range c.parsers {
		if other == parser {
			c.errorf(path+".pluginRef", "%s is listed twice: keep one", parser)
			return
		}
		if other == api.ParserPassthrough {
			c.errorf(path+".pluginRef", "%s is never used: %s accepts everything, so put it last", parser, api.ParserPassthrough)
			return
		}
	}
	c.parsers = append(c.parsers, parser)
	c.written.parser(p)
}

// compilePrefix compiles the one producer of prefixes.
func (c *compiler) compilePrefix() {
	var made *plugin
	for _, p := range c.order {
		if p.kind != approxPrefixProducer {
			continue
		}
		if made != nil {
			c.errorf(p.path, "%s exists already, %s: the picker has only one index of prefixes", p.kind, made.path)
			return
		}
		made = p
	}
	if made == nil {
		made = c.standard(approxPrefixProducer)
	}
	made.used = true
	if p, ok := made.parameters.(*prefixProducerParameters); ok {
		c.made.Prefix = p.prefix()
	}
	c.written.add(made)
}

// warnOfUnused warns of plugins without effect, because nothing refers to them.
func (c *compiler) warnOfUnused() {
	for _, p := range c.order {
		switch {
		case p.kind == "" || p.used:
		case p.kind == tokenProducer || p.kind == inflightProducer || p.kind == sessionIDProducer:
			c.written.add(p)
		default:
			c.warnf(p.path, "%.100q is not used: refer to it or leave it out", p.name)
		}
	}
}
