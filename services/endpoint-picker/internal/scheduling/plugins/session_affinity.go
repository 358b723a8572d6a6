package plugins

import (
	"cmp"
	"reflect"
	"strings"
	"time"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// sessionStrategy is the place that stores the server of a session.
type sessionStrategy string

const (
	// sessionInHeader stores it at the client: each response contains it in a header that the next request repeats.
	sessionInHeader sessionStrategy = "encoded_endpoint_header"
	// sessionByID stores it in the picker, by an identifier that the client gives the session.
	sessionByID sessionStrategy = "session_id"
)

// Upstream's defaults.
const (
	defaultSessionHeader = "x-session-token"
	defaultSessionID     = "x-session-id"
)

const cookieHeader = "cookie"

// sessionAffinity are the parameters of both plugins.
type sessionAffinity struct {
	Strategy    sessionStrategy `yaml:"strategy"`
	ProfileName string          `yaml:"profileName,omitempty"`
	Encoded     encodedSession  `yaml:"encodedEndpointHeaderConfig"`
	ByID        sessionIDConfig `yaml:"sessionIdConfig"`

	settings sessionSettings
	sessions *Sessions
}

type encodedSession struct {
	Header string `yaml:"header"`
}

type sessionIDConfig struct {
	Sources              []sessionIDSource `yaml:"sources"`
	EvictionTTLSeconds   float64           `yaml:"evictionTtlSeconds"`
	EvictionSweepSeconds float64           `yaml:"evictionSweepSeconds"`
}

type sessionIDSource struct {
	Header    string `yaml:"header,omitempty"`
	Attribute string `yaml:"attribute,omitempty"`
	Producer  string `yaml:"producer,omitempty"`
}

func defaultSessionAffinity() sessionAffinity {
	return sessionAffinity{
		Strategy: sessionInHeader,
		Encoded:  encodedSession{Header: defaultSessionHeader},
		ByID: sessionIDConfig{
			Sources:            []sessionIDSource{{Header: defaultSessionID}},
			EvictionTTLSeconds: 300, EvictionSweepSeconds: 10,
		},
	}
}

// sessionSettings are the parameters in the form that requests need. Those of the other strategy are zero.
type sessionSettings struct {
	strategy sessionStrategy
	header   string            // of sessionInHeader, in requests and responses
	sources  []sessionIDHeader // of sessionByID: the first one in a request identifies its session
	ttl      time.Duration     // of sessionByID: time until an unused session is forgotten
	sweep    time.Duration     // of sessionByID: time between removals of forgotten sessions
}

// sessionIDHeader is the place of a session's identifier in a request: a header, or a cookie.
type sessionIDHeader struct{ header, cookie string }

// Validate checks the parameters.
func (p *sessionAffinity) Validate(c *Check) {
	const other = "the strategy is "
	c.Require(p.ProfileName == "", "profileName", "only one profile exists: leave it out")
	c.OneOf("strategy", string(p.Strategy), string(sessionInHeader), string(sessionByID))
	p.settings = sessionSettings{strategy: p.Strategy}
	if p.Strategy == sessionInHeader {
		c.noEffect("sessionIdConfig", other+string(p.Strategy))
		c.Header("encodedEndpointHeaderConfig.header", p.Encoded.Header)
		p.settings.header = strings.ToLower(p.Encoded.Header)
		return
	}
	c.noEffect("encodedEndpointHeaderConfig", other+string(p.Strategy))
	c.Require(len(p.ByID.Sources) > 0, "sessionIdConfig.sources", "it is empty: leave it out for the header %s", defaultSessionID)
	for i, source := range p.ByID.Sources {
		p.settings.sources = append(p.settings.sources, source.resolveHeader(c, strictyaml.Indexed("sessionIdConfig.sources", i)))
	}
	c.Seconds("sessionIdConfig.evictionTtlSeconds", p.ByID.EvictionTTLSeconds)
	c.Seconds("sessionIdConfig.evictionSweepSeconds", p.ByID.EvictionSweepSeconds)
	p.settings.ttl, p.settings.sweep = toDuration(p.ByID.EvictionTTLSeconds), toDuration(p.ByID.EvictionSweepSeconds)
}

func toDuration(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }

// resolveHeader returns the header or cookie of a source. An attribute stands for the parameters of a session-id-producer.
func (s sessionIDSource) resolveHeader(c *Check, at string) sessionIDHeader {
	c.Require((s.Header == "") != (s.Attribute == ""), at, "give either a header or an attribute")
	switch {
	case s.Header != "":
		c.Header(at+".header", s.Header)
		return sessionIDHeader{header: strings.ToLower(s.Header)}
	case s.Attribute == "":
		return sessionIDHeader{}
	}
	c.Require(s.Attribute == sessionIDAttribute, at+".attribute",
		"%.100q is unknown: only %s of a session-id-producer is supported; use a header for other names of sessions", s.Attribute,
		sessionIDAttribute)
	p, _ := c.Plugins.Refer(cmp.Or(s.Producer, typeSessionIDProducer), typeSessionIDProducer)
	producer, ok := p.(*sessionIDProducer)
	if !ok {
		c.Errorf(at+".attribute", "no session-id-producer provides it: declare one, or give the header")
		return sessionIDHeader{}
	}
	if producer.CookieName != "" {
		return sessionIDHeader{header: cookieHeader, cookie: producer.CookieName}
	}
	return sessionIDHeader{header: strings.ToLower(producer.HeaderName)}
}

// ApplyTo gives the plugin its sessions: those of the configuration in force, if they have the same settings. All plugins of
// a configuration share them.
func (p *sessionAffinity) ApplyTo(b *Builder) {
	same := func(s *Sessions) bool { return s != nil && reflect.DeepEqual(s.settings, p.settings) }
	switch {
	case same(b.Parts.Sessions):
	case b.Parts.Sessions != nil:
		b.Errorf("", "its sessions differ from those of another plugin: give both the same parameters")
		return
	case b.Previous != nil && same(b.Previous.Sessions):
		b.Parts.Sessions = b.Previous.Sessions
		b.Parts.Binders = append(b.Parts.Binders, b.Parts.Sessions)
	default:
		b.Parts.Sessions = newSessions(p.settings)
		b.Parts.Binders = append(b.Parts.Binders, b.Parts.Sessions)
	}
	p.sessions = b.Parts.Sessions
	if p.settings.header != "" {
		b.wantHeader(p.settings.header)
	}
	for _, source := range p.settings.sources {
		b.wantHeader(source.header)
	}
}

// sessionAffinityFilter keeps a session on its endpoint while that is a candidate.
type sessionAffinityFilter struct{ sessionAffinity }

// Filter keeps the session's endpoint, or all if it is not a candidate.
func (f *sessionAffinityFilter) Filter(r *scheduling.Request, candidates []scheduling.Candidate) []scheduling.Candidate {
	var buffer sessionBuffer
	bound, ok := f.sessions.findBinding(r, &buffer)
	if !ok {
		return candidates
	}
	return scheduling.PreferAccepted(candidates, func(c *scheduling.Candidate) bool { return bound.matches(c.Server) })
}

// sessionAffinityScorer prefers the endpoint of the request's session.
type sessionAffinityScorer struct{ sessionAffinity }

// Score sets 1 for the session's endpoint.
func (s *sessionAffinityScorer) Score(r *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	var buffer sessionBuffer
	bound, ok := s.sessions.findBinding(r, &buffer)
	if !ok {
		return
	}
	for i := range candidates {
		if bound.matches(candidates[i].Server) {
			scores[i] = 1
		}
	}
}
