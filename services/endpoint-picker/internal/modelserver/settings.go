package modelserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

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

// Settings contain the addresses and names of model servers' metrics, from the parameters of the metrics-data-source and the
// core-metrics-extractor in an EndpointPickerConfig. Each field is listed with its parameter. They may change while the
// scraper runs.
type Settings struct {
	Off bool // nothing is scraped, because there is no metrics-data-source

	// Parameters of metrics-data-source.
	Scheme             string   // scheme: http or https
	Path               string   // path, with an optional query; empty is the engine's own
	Port               int      // port, of all endpoints; 0 is each endpoint's own
	InsecureSkipVerify bool     // insecureSkipVerify
	CACertPath         string   // caCertPath; it requires InsecureSkipVerify off
	ClientCertPath     string   // clientCertPath
	ClientKeyPath      string   // clientKeyPath
	Interval           Interval // interval is Fastest. Zero values come from the flags

	// Parameters of core-metrics-extractor.
	EngineLabel   string   // engineLabelKey
	DefaultEngine string   // defaultEngine: for endpoints without the label, or with an unknown engine
	Engines       []Engine // engineConfigs: they replace built-in engines of the same name, or add others
}

// An Interval is the time between the starts of two scrapes of an endpoint.
type Interval struct {
	Fastest time.Duration // while its pages have news
	Slowest time.Duration // without activity
}

// DefaultSettings returns settings for vLLM in its own pods.
func DefaultSettings() Settings {
	return Settings{
		Scheme:             schemeHTTP,
		InsecureSkipVerify: true, // certificates of pods contain no addresses
		EngineLabel:        LabelEngine,
		DefaultEngine:      EngineVLLM,
	}
}

// Validate returns all problems, with the names of the configuration.
func (s *Settings) Validate() error {
	return errors.Join(s.validateSource(), s.validateTLS(), s.validateEngines())
}

func (s *Settings) validateSource() error {
	var errs []error
	if s.Scheme != schemeHTTP && s.Scheme != schemeHTTPS {
		errs = append(errs, fmt.Errorf("scheme %q is not supported: give http or https", s.Scheme))
	}
	if err := validatePath(s.Path); err != nil {
		errs = append(errs, err)
	}
	if s.Port < 0 || s.Port > maxPort {
		errs = append(errs, fmt.Errorf("port %d is not a port: give one from 1 to %d, or 0 for each endpoint's own", s.Port, maxPort))
	}
	switch {
	case s.Interval.Fastest < 0 || s.Interval.Slowest < 0:
		errs = append(errs, fmt.Errorf("interval %s to %s is negative: leave it out to use the flags", s.Interval.Fastest, s.Interval.Slowest))
	case s.Interval.Fastest > 0 && s.Interval.Fastest < MinInterval:
		errs = append(errs, fmt.Errorf("interval %s is too short: give at least %s", s.Interval.Fastest, MinInterval))
	}
	return errors.Join(errs...)
}

// validatePath refuses paths that would not stay on the request line.
func validatePath(path string) error {
	outside := func(c rune) bool { return c <= ' ' || c > '~' || c == '#' }
	if path != "" && (path[0] != '/' || strings.ContainsFunc(path, outside)) {
		return fmt.Errorf("path %q is not a path: give one such as %s, escaped as in a URL", path, usualPath)
	}
	return nil
}

func (s *Settings) validateTLS() error {
	switch {
	case (s.ClientCertPath == "") != (s.ClientKeyPath == ""):
		return errors.New("clientCertPath and clientKeyPath belong together: give both or none")
	case s.Scheme == schemeHTTP && (s.CACertPath != "" || s.ClientCertPath != ""):
		return errors.New("caCertPath and clientCertPath have no effect with scheme http: set https or leave them out")
	case s.CACertPath != "" && s.InsecureSkipVerify:
		return errors.New("caCertPath has no effect with insecureSkipVerify: set insecureSkipVerify to false or leave caCertPath out")
	}
	return nil
}

func (s *Settings) validateEngines() error {
	var errs []error
	seen := map[string]bool{}
	for i := range s.Engines {
		e := &s.Engines[i]
		if err := e.validate(); err != nil {
			errs = append(errs, fmt.Errorf("engineConfigs[%d].%w", i, err))
		}
		if seen[e.Name] {
			errs = append(errs, fmt.Errorf("engineConfigs[%d].name %q is listed twice", i, e.Name))
		}
		seen[e.Name] = true
	}
	known := false
	for _, e := range mergeEngines(s.Engines) {
		known = known || e.Name == s.DefaultEngine
	}
	if !known {
		errs = append(errs, fmt.Errorf("defaultEngine %q is not one of the engines", s.DefaultEngine))
	}
	if s.EngineLabel == "" {
		errs = append(errs, fmt.Errorf("engineLabelKey is empty: give a label such as %s", LabelEngine))
	}
	return errors.Join(errs...)
}

func (e *Engine) validate() error {
	switch {
	case e.Name == "":
		return errors.New("name is missing")
	case e.Name == engineReserved:
		return fmt.Errorf("name %q is reserved: set defaultEngine instead", e.Name)
	case len(e.Waiting) == 0 && len(e.Running) == 0:
		return errors.New("queuedRequestsSpec and runningRequestsSpec are missing: give at least one of them")
	case e.CacheInfo != "" && (e.BlockSizeLabel == "" || e.BlocksLabel == ""):
		return errors.New("cacheInfoSpec needs cacheBlockSizeLabelName and cacheNumBlocksLabelName")
	}
	if err := errors.Join(e.validateCustom(), validatePath(e.Path)); err != nil {
		return err
	}
	_, err := newMatcher(e)
	return err
}

func (e *Engine) validateCustom() error {
	seen := map[string]bool{}
	for i, c := range e.Custom {
		if c.Attribute == "" || c.Metric == "" || seen[c.Attribute] {
			return fmt.Errorf("customMetrics[%d] needs an attributeKey of its own and a metricSpec", i)
		}
		seen[c.Attribute] = true
	}
	return nil
}

// plan is the prepared form of Settings. It is never changed.
type plan struct {
	Settings

	tls     *tls.Config // nil for http
	engines map[string]*compiled
}

// compiled is the prepared form of an engine.
type compiled struct {
	*matcher

	path string
}

// newPlan validates settings and reads the files that they name.
func newPlan(s Settings) (*plan, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &plan{Settings: s, engines: map[string]*compiled{}}
	for _, e := range mergeEngines(s.Engines) {
		m, err := newMatcher(&e)
		if err != nil {
			return nil, fmt.Errorf("engine %s: %w", e.Name, err)
		}
		c := &compiled{matcher: m, path: usualPath}
		if e.Path != "" {
			c.path = e.Path
		}
		if s.Path != "" {
			c.path = s.Path
		}
		p.engines[e.Name] = c
	}
	var err error
	if s.Scheme == schemeHTTPS {
		p.tls, err = s.tlsConfig()
	}
	return p, err
}

func (s *Settings) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: s.InsecureSkipVerify, //nolint:gosec // as configured; upstream's default
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
func (p *plan) engineOf(d *endpoint.Description) (*compiled, bool) {
	name, labelled := d.Labels[p.EngineLabel]
	if !labelled && p.EngineLabel == LabelEngine {
		name, labelled = d.Labels[labelEngineLegacy]
	}
	if !labelled || name == engineReserved {
		return p.engines[p.DefaultEngine], true
	}
	if e := p.engines[name]; e != nil {
		return e, true
	}
	return p.engines[p.DefaultEngine], false
}

// request returns the bytes of the request for a server's page.
func (p *plan) request(host string, e *compiled) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: text/plain;version=0.0.4\r\n\r\n", http.MethodGet, e.path, host, userAgent)
}
