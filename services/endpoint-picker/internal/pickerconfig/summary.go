package pickerconfig

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// written is the configuration with all defaults.
type written struct {
	APIVersion  string           `yaml:"apiVersion"`
	Kind        string           `yaml:"kind"`
	Plugins     []writtenPlugin  `yaml:"plugins"`
	Profiles    []profileSpec    `yaml:"schedulingProfiles"`
	DataLayer   writtenDataLayer `yaml:"dataLayer"`
	FlowControl writtenFlow      `yaml:"flowControl"`
	Handler     handlerSpec      `yaml:"requestHandler"`

	names map[string]bool
}

type writtenPlugin struct {
	Name       string     `yaml:"name"`
	Type       string     `yaml:"type"`
	Parameters parameters `yaml:"parameters,omitempty"`
}

type writtenDataLayer struct {
	InjectDefaults *bool          `yaml:"injectDefaults,omitempty"`
	Sources        []sourceSpec   `yaml:"sources,omitempty"`
	Discovery      *referenceSpec `yaml:"discovery,omitempty"`
}

type writtenFlow struct {
	SaturationDetector referenceSpec `yaml:"saturationDetector"`
}

// add writes a plugin, once.
func (w *written) add(p *plugin) {
	if w.names[p.name] {
		return
	}
	if w.names == nil {
		w.names = map[string]bool{}
	}
	w.names[p.name] = true
	plugin := writtenPlugin{Name: p.name, Type: p.kind, Parameters: p.parameters}
	switch p.parameters.(type) {
	case *none, *roleParameters, *plainScorer, *testingParameters:
		plugin.Parameters = nil
	}
	w.Plugins = append(w.Plugins, plugin)
}

func (w *written) profile(name string) { w.Profiles = []profileSpec{{Name: name}} }

func (w *written) place(p *plugin, spec profilePlugin) {
	w.add(p)
	w.Profiles[0].Plugins = append(w.Profiles[0].Plugins, spec)
}

func (w *written) noDefaults() {
	no := false
	w.DataLayer.InjectDefaults = &no
}

func (w *written) source(source, extractor *plugin) {
	w.add(source)
	w.add(extractor)
	w.DataLayer.Sources = []sourceSpec{{PluginRef: source.name, Extractors: []referenceSpec{{PluginRef: extractor.name}}}}
}

func (w *written) discovery(p *plugin) {
	w.add(p)
	w.DataLayer.Discovery = &referenceSpec{PluginRef: p.name}
}

func (w *written) saturation(p *plugin) {
	w.add(p)
	w.FlowControl.SaturationDetector.PluginRef = p.name
}

func (w *written) parser(p *plugin) {
	w.add(p)
	w.Handler.Parsers = append(w.Handler.Parsers, referenceSpec{PluginRef: p.name})
}

// text returns the whole configuration.
func (w *written) text() ([]byte, error) {
	w.APIVersion, w.Kind = apiVersion, kindName
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(w); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return out.Bytes(), nil
}
