package pluginconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/internal/scheduling/plugins"
)

// compiler converts a document to a Config.
type compiler struct {
	*strictyaml.Document

	options  Options
	document document
	declared map[string]*plugin
	order    []*plugin // as declared
	identity int       // filters by identity at the start of the profile
	picker   *plugin   // of the profile; nil until the compiler places one
	config   Config
}

// Load reads a configuration. Its error is of type strictyaml.TextError.
func Load(text []byte, o Options) (*Config, error) {
	parsed, err := strictyaml.Parse(text, strictyaml.Options{MaxBytes: MaxBytes, Empty: "for the defaults, configure no text"})
	if err != nil {
		return nil, err
	}
	c := &compiler{Document: parsed, options: o, declared: map[string]*plugin{}}
	c.config.Profile = &scheduling.Profile{}
	if c.options.Source == (modelserver.Source{}) {
		c.options.Source = modelserver.DefaultSettings().Source
	}
	c.config.Prefix = plugins.DefaultPrefixIndex()
	c.config.Scraping = modelserver.DefaultSettings()
	c.config.Scraping.Off = true // until a source is installed
	if err := refuseWrapped(parsed); err != nil {
		return nil, err
	}
	parsed.Decode(&c.document)
	c.compileAll()
	if err := parsed.AllProblems(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	c.config.Hash = hex.EncodeToString(sum[:6])
	c.config.Profile.Binders = c.config.Binders
	c.config.Profile.SetEstimates(c.config.Saturation)
	c.config.Warnings = parsed.Warnings()
	return &c.config, nil
}

// refuseWrapped refuses a text with a configuration in one of its values, such as a ConfigMap or the values of a Helm chart.
func refuseWrapped(d *strictyaml.Document) error {
	path, found := d.FindText(func(text string) bool { return wrapped.MatchString(text) })
	if !found {
		return nil
	}
	d.Errorf(path, "this is the %s, and the file around it, such as the values of a Helm chart or a ConfigMap, is not: give only the text "+
		"of this field", kindName)
	return d.AllProblems()
}

// wrapped matches a configuration in a value.
var wrapped = regexp.MustCompile(`(?m)^kind: *["']?` + kindName + `\b`)

// Default returns the default configuration: requests go to the endpoint with the earliest expected first token, except for
// servers that only encode or prefill.
func Default(o Options) *Config {
	config, err := Load([]byte(defaultText), o)
	if err != nil {
		panic(fmt.Sprintf("default configuration: %v", err)) // tests load it
	}
	config.Hash = "default"
	return config
}

// compileAll compiles the document, part by part. Problems of one part do not hide those of another.
func (c *compiler) compileAll() {
	c.checkHead()
	c.checkGates()
	c.readPlugins()
	c.compileDataLayer() // before profiles, which refer to metrics
	c.compileProfile()
	c.compileSaturation()
	c.compileWaiting()
	c.compileParsers()
	c.finishPlugins()
}

func (c *compiler) checkHead() {
	switch given := c.document.APIVersion; {
	case given == "":
		c.Errorf("apiVersion", "it is missing: give %s", apiVersion)
	case given != apiVersion && !slices.Contains(olderVersions, given):
		c.Errorf("apiVersion", "%.100q is not known: give %s", given, apiVersion)
	}
	if c.document.Kind != kindName {
		c.Errorf("kind", "%.100q is not %s", c.document.Kind, kindName)
	}
}

// gate is a feature gate of upstream.
type gate struct {
	missing string // what to do instead, if the gate must be off
	why     string // the gate has no effect
}

// gates are the feature gates of all releases of the Inference Extension and of the llm-d router.
var gates = map[string]gate{
	"flowControl":                  {missing: plugins.NoFlowControl},
	"haPopulateNonLeaderDatastore": {why: "all replicas know all endpoints"},
	"dataLayer":                    {why: usesDataLayer},
	"prepareDataPlugins":           {why: usesDataLayer},
	"experimentalDatalayerWithHighAvailability": {why: usesDataLayer},
	// In spite of its name it says how pages are scraped, and changes no exported metric.
	"enableLegacyMetrics": {why: "the picker scrapes in one way only; for older names of its own metrics, give the flag --legacy-metrics"},
}

const usesDataLayer = "the dataLayer is always in use"

func (c *compiler) checkGates() {
	for i, text := range c.document.FeatureGates {
		at := strictyaml.Indexed("featureGates", i)
		name, on, err := parseGate(text)
		g, known := gates[name]
		switch {
		case err != nil:
			c.Errorf(at, "%v", err)
		case !known:
			c.Errorf(at, "unknown feature gate %.100q: %s", name, strictyaml.Hint(name, sortedKeys(gates)))
		case g.missing != "" && on:
			c.Errorf(at, "this picker has no %s: %s", name, g.missing)
		case g.why != "":
			c.Warnf(at, "%s has no effect: %s: leave it out", name, g.why)
		}
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
