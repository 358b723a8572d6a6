package pluginconfig

import (
	"slices"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/internal/scheduling/plugins"
)

const profileName = "default"

// compileProfile compiles the configured profile, or one of all suitable plugins, or the default one.
func (c *compiler) compileProfile() {
	specs := c.document.SchedulingProfiles
	switch len(specs) {
	case 0:
		for _, p := range c.profilePlugins() {
			c.addToProfile(p.path, p, nil)
		}
	case 1:
		c.compileProfileSpec(&specs[0])
	default:
		c.Errorf("schedulingProfiles[1]", "there are %d profiles: %s", len(specs), plugins.NoSplit)
		return
	}
	if c.picker == nil {
		c.addToProfile("", c.firstPicker(), nil)
	}
	if len(c.config.Profile.Scorers) == 0 && len(specs) > 0 && !c.picker.kind.IgnoresScores {
		c.Warnf("schedulingProfiles[0]", "it has no scorer: endpoints are picked at random; %s is the scorer of the default",
			plugins.PredictedWaitScorer)
	}
	filters := &c.config.Profile.Filters
	*filters = slices.Insert(*filters, c.identity, scheduling.Filter(plugins.Staleness{After: c.options.StaleAfter}))
}

func (c *compiler) compileProfileSpec(profile *profileSpec) {
	if profile.Name == "" {
		c.Errorf("schedulingProfiles[0]", "its name is missing: give %s", profileName)
	}
	for i, spec := range profile.Plugins {
		path := strictyaml.Indexed("schedulingProfiles[0].plugins", i)
		if p := c.pluginNamed(path, spec.PluginRef); p != nil {
			c.addToProfile(path, p, spec.Weight)
		}
	}
}

// profilePlugins returns the plugins of a profile that is not configured: all declared ones that belong in profiles, or those
// of the default configuration.
func (c *compiler) profilePlugins() []*plugin {
	var list []*plugin
	for _, p := range c.order {
		if !p.isIgnored() && p.kind.Section == plugins.SectionProfile {
			p.used = true
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		list = c.defaultPlugins()
	}
	return list
}

// defaultPlugins returns the plugins of the default configuration.
func (c *compiler) defaultPlugins() []*plugin {
	d := &compiler{options: c.options, declared: map[string]*plugin{}}
	var err error
	if d.Document, err = strictyaml.Parse([]byte(defaultText), strictyaml.Options{MaxBytes: MaxBytes}); err != nil {
		panic("default configuration: " + err.Error()) // tests load it
	}
	d.Decode(&d.document)
	d.readPlugins()
	for _, p := range d.order {
		p.path = "" // is not in this text
	}
	return d.order
}

// firstPicker returns the picker of a profile that names none.
func (c *compiler) firstPicker() *plugin {
	for _, p := range c.order {
		if _, ok := p.instance.(scheduling.Picker); ok {
			p.used = true
			return p
		}
	}
	return c.defaultOf(plugins.SectionProfile)
}

// addToProfile adds a plugin to the right part of the profile. A plugin with invalid parameters already has its own problem.
func (c *compiler) addToProfile(path string, p *plugin, weight *float64) {
	profile := c.config.Profile
	switch instance := p.instance.(type) {
	case scheduling.Scorer:
		c.installPlugin(p, path)
		profile.Scorers = append(profile.Scorers, scheduling.WeightedScorer{Name: p.name, Scorer: instance,
			Weight: c.pluginWeight(path, weight)})
	case scheduling.Filter:
		c.installPlugin(p, path)
		c.warnWeight(path, weight)
		if byServer, ok := instance.(scheduling.ServerFilter); ok && len(profile.Filters) == 0 {
			profile.Servers = append(profile.Servers, byServer)
			return
		}
		if p.kind.Identity && c.identity == len(profile.Filters) {
			c.identity++
		}
		profile.Filters = append(profile.Filters, instance)
	case scheduling.Picker:
		c.installPlugin(p, path)
		c.warnWeight(path, weight)
		if other := c.picker; other != nil {
			c.Errorf(path, "there are two pickers, %.100q and %.100q: keep one", other.name, p.name)
			return
		}
		c.picker, profile.Picker = p, instance
	default:
		c.Warnf(path+".pluginRef", "it has no effect here: %s is neither a filter nor a scorer nor a picker: leave it out of the profile, "+
			"because %s", p.kind.Name, p.kind.Section.Reason())
		c.warnWeight(path, weight)
	}
}

func (c *compiler) pluginWeight(path string, given *float64) float64 {
	if given == nil {
		return 1
	}
	if *given < 0 {
		c.Errorf(path+".weight", "%v is out of range: give 0 or more", *given)
	}
	return *given
}

func (c *compiler) warnWeight(path string, given *float64) {
	if given != nil {
		c.Warnf(path+".weight", "it has no effect: only scorers have a weight")
	}
}
