package pickerconfig

import (
	"fmt"
	"strconv"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const profileName = "default"

// compileProfile compiles the configured profile, or one of all suitable plugins.
func (c *compiler) compileProfile() {
	profile := profileSpec{Name: profileName}
	switch specs := c.document.SchedulingProfiles; len(specs) {
	case 0:
		profile.Plugins = c.everyPlugin()
	case 1:
		profile = specs[0]
	default:
		c.errorf("schedulingProfiles[1]", "there are %d profiles: %s", len(specs), insteadSplit)
		return
	}
	if profile.Name == "" {
		c.errorf("schedulingProfiles[0]", "its name is missing: give %s", profileName)
	}
	c.written.profile(profile.Name)
	c.made.Profile = &scheduling.Profile{Filters: []scheduling.Filter{c.staleness()}}
	for i, spec := range profile.Plugins {
		path := "schedulingProfiles[0]." + indexed("plugins", i)
		if p := c.reference(path, spec.PluginRef); p != nil {
			c.place(path, p, spec.Weight)
		}
	}
	if c.made.Profile.Picker == nil {
		c.place("", c.firstPicker(), nil)
	}
	if len(c.made.Profile.Scorers) == 0 && len(c.document.SchedulingProfiles) > 0 {
		c.warnNoScorers()
	}
	if p := c.declared[singleProfileHandler]; p != nil {
		p.used = true
	}
	c.written.add(c.standard(singleProfileHandler))
}

// everyPlugin returns the references of a profile that is not configured, or those of the default if there are no plugins
// either.
func (c *compiler) everyPlugin() []profilePlugin {
	var refs []profilePlugin
	for _, p := range c.order {
		if p.inProfiles() && p.kind != utilizationDetector && p.kind != concurrencyDetector {
			refs = append(refs, profilePlugin{PluginRef: p.name})
		}
	}
	if len(refs) == 0 {
		p := c.standard(predictedWaitScorer)
		c.declared[p.name] = p
		refs = append(refs, profilePlugin{PluginRef: p.name})
	}
	return refs
}

// inProfiles reports whether the plugin's kind belongs in profiles.
func (p *plugin) inProfiles() bool {
	switch p.parameters.(type) {
	case filterer, scorer, picker:
		return true
	}
	return false
}

// firstPicker returns the picker of a profile that names none.
func (c *compiler) firstPicker() *plugin {
	for _, p := range c.order {
		if _, ok := p.parameters.(picker); ok {
			p.used = true
			return p
		}
	}
	return c.standard(maxScorePicker)
}

// place adds a plugin to the right part of the profile. A plugin with invalid parameters already has its own problem.
func (c *compiler) place(path string, p *plugin, weight *float64) {
	if u, ok := p.parameters.(user); ok {
		u.use(c.checker(p))
	}
	profile, spec := c.made.Profile, profilePlugin{PluginRef: p.name}
	switch made := p.parameters.(type) {
	case scorer:
		spec.Weight = c.weight(path, weight)
		if len(c.problems) == 0 {
			profile.Scorers = append(profile.Scorers, scheduling.WeightedScorer{Name: p.name, Scorer: made.scorer(), Weight: *spec.Weight})
		}
		c.scorers++
	case filterer:
		c.warnWeight(path, weight)
		if len(c.problems) == 0 {
			profile.Filters = append(profile.Filters, made.filter())
		}
	case picker:
		c.warnWeight(path, weight)
		if c.picker != "" {
			c.errorf(path, "there are two pickers, %.100q and %.100q: keep one", c.picker, p.name)
			return
		}
		c.picker = p.name
		profile.Picker = made.picker()
	default:
		c.errorf(path+".pluginRef", "%s is neither a filter nor a scorer nor a picker: %s", p.kind, whereFor(p.kind))
		return
	}
	c.written.place(p, spec)
}

func (c *compiler) weight(path string, given *float64) *float64 {
	weight := 1.0
	if given != nil {
		weight = *given
	}
	if weight < 0 {
		c.errorf(path+".weight", "%v is out of range: give 0 or more", weight)
	}
	return &weight
}

func (c *compiler) warnWeight(path string, given *float64) {
	if given != nil {
		c.warnf(path+".weight", "it has no effect: only scorers have a weight")
	}
}

func (c *compiler) warnNoScorers() {
	if c.made.Profile.Picker == nil || c.scorers > 0 {
		return
	}
	if p := c.declared[c.picker]; p != nil && p.kind == "random-picker" {
		return
	}
	c.warnf("schedulingProfiles[0]", "it has no scorer: endpoints are picked at random; %s is the scorer of the default", predictedWaitScorer)
}

// whereFor returns the right section for a plugin that does not belong in a profile.
func whereFor(kind string) string {
	switch {
	case kind == metricsDataSource:
		return "refer to it in dataLayer.sources"
	case kind == coreMetricsExtractor:
		return "refer to it in the extractors of dataLayer.sources"
	case kind == "file-discovery":
		return "refer to it in dataLayer.discovery"
	case strings.HasSuffix(kind, "-parser"):
		return "refer to it in requestHandler.parsers"
	default:
		return "it works without a reference"
	}
}

// parseGate parses "name" or "name=true".
func parseGate(text string) (name string, on bool, err error) {
	name, value, given := strings.Cut(text, "=")
	if !given {
		return name, true, nil
	}
	if on, err = strconv.ParseBool(value); err != nil {
		return name, false, fmt.Errorf("%.100q is neither true nor false", value)
	}
	return name, on, nil
}
