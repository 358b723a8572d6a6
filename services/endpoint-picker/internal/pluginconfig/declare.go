package pluginconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/scheduling/plugins"
)

// plugin is a declared or a default plugin.
type plugin struct {
	name     string
	path     string       // of its declaration; empty for a default
	flat     bool         // its parameters are at its path
	kind     plugins.Type // without a name if the plugin is ignored
	instance plugins.Plugin
	used     bool
}

// isIgnored reports whether the plugin has no effect: the picker does not need it, or its type has a problem.
func (p *plugin) isIgnored() bool { return p.kind.Name == "" }

// parametersPath returns the path of the plugin's parameters.
func (p *plugin) parametersPath() string {
	switch {
	case p.path == "":
		return "parameters"
	case p.flat:
		return p.path
	}
	return p.path + ".parameters"
}

// readPlugins reads the plugins and their parameters, then validates them, because they may refer to each other.
func (c *compiler) readPlugins() {
	first := map[string]string{} // paths by type
	for i, spec := range c.document.Plugins {
		p := c.declareOne(strictyaml.Indexed("plugins", i), spec)
		if p == nil || p.isIgnored() {
			continue
		}
		if other, twice := first[p.kind.Name]; twice && p.kind.OnlyOne != "" {
			c.Errorf(p.path, "%s exists already, %s: %s", p.kind.Name, other, p.kind.OnlyOne)
		}
		first[p.kind.Name] = p.path
		p.instance = p.kind.New(c.pluginEnvironment())
		c.DecodeAt(p.parametersPath(), spec.Parameters, p.instance)
	}
	for _, p := range c.order {
		c.validatePlugin(p)
	}
}

// declareOne registers a plugin under its name; nil after a problem of the name.
func (c *compiler) declareOne(path string, spec pluginSpec) *plugin {
	if spec.Type == "" {
		c.Errorf(path, "its type is missing")
		return nil
	}
	p := &plugin{name: cmp.Or(spec.Name, spec.Type), path: path, kind: c.findType(path+".type", spec.Type)}
	if other, twice := c.declared[p.name]; twice {
		c.Errorf(path, "another plugin %.100q exists, %s: rename one of them", p.name, other.path)
		return nil
	}
	c.declared[p.name], c.order = p, append(c.order, p)
	return p
}

// findType returns the type with a name. Without a problem or warning it has the same name.
func (c *compiler) findType(path, name string) plugins.Type {
	if advice, ok := plugins.Replacement(name); ok {
		c.Errorf(path, "this picker has no %s: %s", name, advice)
		return plugins.Type{}
	}
	if reason, ok := plugins.Unneeded(name); ok {
		c.Warnf(path, "%s is not needed: %s: leave it out", name, reason)
		return plugins.Type{}
	}
	found, ok := plugins.FindType(name)
	switch {
	case !ok:
		hint := "use one of those in " + plugins.Page
		if near := strictyaml.Nearest(name, plugins.Names()); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		c.Errorf(path, "%.100q is not a type of plugin: %s", name, hint)
	case found.Name != name:
		c.Warnf(path, "%s is an old name: use %s", name, found.Name)
	case found.ReplacedBy != "":
		c.Warnf(path, "%s is old: use %s", name, found.ReplacedBy)
	}
	return found
}

func (c *compiler) pluginEnvironment() plugins.Environment {
	return plugins.Environment{StaleAfter: c.options.StaleAfter, Source: c.options.Source, DefaultEngine: c.options.DefaultEngine}
}

func (c *compiler) validatePlugin(p *plugin) {
	if !p.isIgnored() {
		p.instance.Validate(&plugins.Check{Checker: c.Checker(p.parametersPath()), Plugins: c})
	}
}

// installPlugin lets a plugin set parts of the configuration.
func (c *compiler) installPlugin(p *plugin, reference string) {
	installer, ok := p.instance.(plugins.Installer)
	if !ok {
		return
	}
	b := &plugins.Builder{Name: p.name, Checker: c.Checker(p.parametersPath()), Reference: c.Checker(reference), Parts: &c.config.Parts}
	if c.options.Previous != nil {
		b.Previous = &c.options.Previous.Parts
	}
	installer.ApplyTo(b)
}

// Declares reports whether a plugin has the name.
func (c *compiler) Declares(name string) bool { return c.declared[name] != nil }

// Refer returns the plugin with a name if it is of the type, and counts it as used.
func (c *compiler) Refer(name, typeName string) (plugins.Plugin, bool) {
	p, ok := c.declared[name]
	if !ok || p.kind.Name != typeName {
		return nil, false
	}
	p.used = true
	return p.instance, true
}

// pluginNamed returns the plugin with a name, or nil after a problem. An ignored plugin is nil, too.
func (c *compiler) pluginNamed(path, name string) *plugin {
	p, ok := c.declared[name]
	switch {
	case name == "":
		c.Errorf(path, "its pluginRef is missing")
		return nil
	case !ok:
		hint := "declare it in plugins"
		if near := strictyaml.Nearest(name, sortedKeys(c.declared)); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		c.Errorf(path+".pluginRef", "unknown plugin %.100q: %s", name, hint)
		return nil
	case p.isIgnored():
		return nil
	}
	p.used = true
	return p
}

// isIgnored reports whether a name is that of an ignored plugin.
func (c *compiler) isIgnored(name string) bool {
	p, ok := c.declared[name]
	return ok && p.isIgnored()
}

// sectionReference is reference for plugins of one section. wanted says what belongs there.
func (c *compiler) sectionReference(path, name string, section plugins.Section, wanted string) *plugin {
	p := c.pluginNamed(path, name)
	if p != nil && p.kind.Section != section {
		c.Errorf(path+".pluginRef", "%.100q is of type %s%s", name, p.kind.Name, wanted)
		return nil
	}
	return p
}

// standardPlugin returns a plugin that exists without a declaration.
func (c *compiler) standardPlugin(kind plugins.Type) *plugin {
	for _, name := range append([]string{kind.Name}, kind.Aliases...) {
		if p, ok := c.declared[name]; ok && p.kind.Name == kind.Name {
			p.used = true
			return p
		}
	}
	p := &plugin{name: kind.Name, kind: kind, instance: kind.New(c.pluginEnvironment()), used: true}
	c.validatePlugin(p)
	return p
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
