package modelserver

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"

	usualPath = "/metrics"
	maxPort   = 65535

	// LabelEngine is the label of a pod that names its engine, labelEngineLegacy its older name.
	LabelEngine       = "llm-d.ai/engine-type"
	labelEngineLegacy = "inference.networking.k8s.io/engine-type"
)

// Settings are the parameters of the plugins that configure scraping. They may change while the scraper runs.
type Settings struct {
	Off bool // nothing is scraped, because there is no metrics-data-source

	Source    Source
	Extractor Extractor
}

// Source contains the parameters of a metrics-data-source: the addresses of metrics pages.
type Source struct {
	Scheme             string        `yaml:"scheme"`         // http or https
	Path               string        `yaml:"path,omitempty"` // with an optional query; empty is the engine's own
	Port               *int          `yaml:"port,omitempty"` // of endpoints without their own; nil is the engine's, or that of requests
	InsecureSkipVerify *bool         `yaml:"insecureSkipVerify,omitempty"`
	CACertPath         string        `yaml:"caCertPath,omitempty"`
	ClientCertPath     string        `yaml:"clientCertPath,omitempty"`
	ClientKeyPath      string        `yaml:"clientKeyPath,omitempty"`
	Interval           time.Duration `yaml:"interval,omitempty"` // while pages have news; 0 is the flag's
}

// Extractor contains the parameters of a core-metrics-extractor: the metrics to read from pages.
type Extractor struct {
	EngineLabel   string   `yaml:"engineLabelKey"`          // of pods, with the name of their engine
	DefaultEngine string   `yaml:"defaultEngine"`           // for endpoints without the label, or with an unknown engine
	Engines       []Engine `yaml:"engineConfigs,omitempty"` // they replace built-in engines of the same name, or add others
}

// An Interval is the time between the starts of two scrapes of an endpoint.
type Interval struct {
	Fastest time.Duration // while its pages have news
	Slowest time.Duration // without activity
}

// DefaultSettings returns settings for vLLM in its own pods.
func DefaultSettings() Settings {
	return Settings{
		Source:    Source{Scheme: schemeHTTP},
		Extractor: Extractor{EngineLabel: LabelEngine, DefaultEngine: EngineVLLM},
	}
}

// ScrapeInterval returns the interval, with flags for what the settings do not have.
func (s *Settings) ScrapeInterval(flags Interval) Interval {
	fastest := cmp.Or(s.Source.Interval, flags.Fastest)
	return Interval{Fastest: fastest, Slowest: max(fastest, flags.Slowest)}
}

// HasAttribute reports whether one of the engines has the custom metric.
func (e *Extractor) HasAttribute(name string) bool {
	return slices.ContainsFunc(e.Engines, func(e Engine) bool {
		return slices.ContainsFunc(e.Custom, func(c CustomMetric) bool { return c.Attribute == name })
	})
}

// skipsVerification reports whether certificates of servers are accepted without verification. That is the default, because
// certificates of pods contain no addresses, but a configured authority enables verification.
func (s *Source) skipsVerification() bool {
	return s.CACertPath == "" && (s.InsecureSkipVerify == nil || *s.InsecureSkipVerify)
}

// Validate returns all problems, with the names of the parameters.
func (s *Settings) Validate() error {
	var c strictyaml.Checker
	s.Source.Validate(&c)
	s.Extractor.Validate(&c)
	return c.AllProblems()
}

// Validate checks the parameters.
func (s *Source) Validate(c *strictyaml.Checker) {
	c.OneOf("scheme", s.Scheme, schemeHTTP, schemeHTTPS)
	if s.Path != "" || c.HasField("path") {
		c.Require(strings.HasPrefix(s.Path, "/"), "path", "%.100q does not begin with /", s.Path)
		c.Require(!strings.ContainsFunc(s.Path, mustBeEscaped), "path", "%.100q has characters that must be escaped, as in a URL", s.Path)
	}
	c.Require(s.Port == nil || *s.Port > 0 && *s.Port <= maxPort, "port", "it is not a port: give one from 1 to %d", maxPort)
	c.Require(s.Interval == 0 || s.Interval >= MinInterval, "interval", "%s is too short: give at least %s", s.Interval, MinInterval)
	c.Require((s.ClientCertPath == "") == (s.ClientKeyPath == ""), "clientCertPath", "give clientCertPath and clientKeyPath, or neither")
	c.Require(s.Scheme == schemeHTTPS || s.CACertPath+s.ClientCertPath == "", "scheme",
		"certificates have no effect with %.100q: use https or leave them out", s.Scheme)
	switch skip := s.InsecureSkipVerify; {
	case skip == nil:
	case *skip && s.CACertPath != "":
		c.Warnf("insecureSkipVerify", "it has no effect: certificates are verified, because caCertPath is set")
	case !*skip && s.Scheme == schemeHTTP:
		c.Warnf("insecureSkipVerify", "it has no effect: nothing is verified with scheme http")
	}
}

// mustBeEscaped reports whether a character of a path would not stay on the request line.
func mustBeEscaped(c rune) bool { return c <= ' ' || c > '~' || c == '#' }

// Validate checks the parameters.
func (e *Extractor) Validate(c *strictyaml.Checker) {
	c.Require(e.EngineLabel != "", "engineLabelKey", "it is empty: leave it out for %s", LabelEngine)
	seen := map[string]bool{}
	for i := range e.Engines {
		at, engine := strictyaml.Indexed("engineConfigs", i), &e.Engines[i]
		engine.validateEngine(c, at)
		c.Require(!seen[engine.Name], at+".name", "engine %.100q is listed twice: keep one", engine.Name)
		seen[engine.Name] = true
	}
	if e.DefaultEngine == "" {
		c.Errorf("defaultEngine", "it is empty: leave it out for %s", EngineVLLM)
		return
	}
	var names []string
	for _, engine := range mergeEngines(e.Engines) {
		names = append(names, engine.Name)
	}
	c.OneOf("defaultEngine", e.DefaultEngine, names...)
}

// validateEngine checks one of engineConfigs.
func (e *Engine) validateEngine(c *strictyaml.Checker, at string) {
	c.Require(e.Name != "" && e.Name != engineReserved, at+".name", "give the engine a name other than %q", engineReserved)
	c.Require(len(e.Waiting)+len(e.Running) > 0, at, "give at least one of queuedRequestsSpec and runningRequestsSpec")
	if e.CacheInfo == "" && e.BlockSizeLabel+e.BlocksLabel != "" {
		c.Warnf(at, "cacheBlockSizeLabelName and cacheNumBlocksLabelName have no effect without cacheInfoSpec")
	}
	if (e.BlockSize == "") != (e.Blocks == "") {
		c.Warnf(at, "cacheBlockSizeSpec and cacheNumBlocksSpec have no effect without each other")
	}
	seen := map[string]bool{}
	for i, m := range e.Custom {
		metric := strictyaml.Indexed(at+".customMetrics", i)
		c.Require(m.Attribute != "" && m.Metric != "", metric, "give both attributeKey and metricSpec")
		c.Require(!seen[m.Attribute], metric+".attributeKey", "metric %.100q is listed twice: keep one", m.Attribute)
		seen[m.Attribute] = true
	}
	var invalid *specError
	if _, err := newMatcher(e); errors.As(err, &invalid) {
		c.Errorf(at+"."+invalid.field, "%v", invalid.reason)
	}
}

// A Plan is the prepared form of Settings: everything that scrapes need, read and checked. It is never changed.
type Plan struct {
	settings Settings
	interval Interval
	tls      *tls.Config // nil for http
	engines  map[string]*matcher
}

// CompilePlan validates settings, and reads the files that they name. The options have the interval for settings without one. Scrapers with
// the same options can share the plan.
func CompilePlan(s Settings, o Options) (*Plan, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("prepare scraping: %w", err)
	}
	p := &Plan{settings: s, interval: s.ScrapeInterval(o.Interval), engines: map[string]*matcher{}}
	for _, e := range mergeEngines(s.Extractor.Engines) {
		e.Path = cmp.Or(s.Source.Path, e.Path, usualPath)
		m, err := newMatcher(&e)
		if err != nil {
			return nil, fmt.Errorf("prepare scraping: engine %s: %w", e.Name, err)
		}
		p.engines[e.Name] = m
	}
	if s.Source.Scheme != schemeHTTPS {
		return p, nil
	}
	var err error
	if p.tls, err = s.Source.TLSConfig(); err != nil {
		return nil, fmt.Errorf("prepare scraping: %w", err)
	}
	return p, nil
}

// Files returns the paths of the files that TLSConfig reads.
func (s *Source) Files() []string {
	return slices.DeleteFunc([]string{s.CACertPath, s.ClientCertPath, s.ClientKeyPath}, func(path string) bool { return path == "" })
}

// TLSConfig reads the files, and returns the settings of connections with TLS, for HTTP/1.1.
func (s *Source) TLSConfig() (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: s.skipsVerification(), //nolint:gosec // as configured; upstream's default
		NextProtos:         []string{"http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}
	if s.CACertPath != "" {
		pem, err := os.ReadFile(s.CACertPath)
		if err != nil {
			return nil, fmt.Errorf("read caCertPath: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read caCertPath: %s has no certificate", s.CACertPath)
		}
	}
	if s.ClientCertPath != "" {
		pair, err := tls.LoadX509KeyPair(s.ClientCertPath, s.ClientKeyPath)
		if err != nil {
			return nil, fmt.Errorf("read clientCertPath and clientKeyPath: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// engineOf returns the engine of an endpoint. For a label with an unknown engine it returns the default engine and false.
func (p *Plan) engineOf(d *endpoint.Description) (*matcher, bool) {
	e := &p.settings.Extractor
	name, labelled := d.Labels[e.EngineLabel]
	if !labelled && e.EngineLabel == LabelEngine {
		name, labelled = d.Labels[labelEngineLegacy]
	}
	if !labelled || name == engineReserved {
		return p.engines[e.DefaultEngine], true
	}
	if known := p.engines[name]; known != nil {
		return known, true
	}
	return p.engines[e.DefaultEngine], false
}

// pageAddress returns the address of an endpoint's page. The port is the first that is known: of the endpoint, of all endpoints, of the
// engine, and that of requests.
func (p *Plan) pageAddress(d *endpoint.Description, e *matcher) netip.AddrPort {
	port := int(d.MetricsPort)
	if port == 0 && p.settings.Source.Port != nil {
		port = *p.settings.Source.Port
	}
	return netip.AddrPortFrom(d.Address.Addr(), uint16(cmp.Or(port, e.Port, int(d.Address.Port()))))
}

// requestBytes returns the bytes of the request for a server's page.
func (p *Plan) requestBytes(host string, e *matcher) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: text/plain;version=0.0.4\r\n\r\n", http.MethodGet,
		e.Path, host, userAgent)
}
