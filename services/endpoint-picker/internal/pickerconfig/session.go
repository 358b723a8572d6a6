package pickerconfig

import (
	"cmp"
	"reflect"
	"strings"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// A SessionStrategy is the place that stores the server of a session.
type SessionStrategy string

// The strategies.
const (
	// SessionInHeader stores it at the client: each response contains it in a header that the next request repeats.
	SessionInHeader SessionStrategy = "encoded_endpoint_header"
	// SessionByID stores it in the picker, by a name that the client gives the session.
	SessionByID SessionStrategy = "session_id"
)

// Session configures how requests of one session find the server of the last one.
type Session struct {
	Strategy SessionStrategy
	Header   string          // of SessionInHeader, in requests and responses: base64 of "namespace/pod"
	Sources  []SessionSource // of SessionByID: the first one in a request names its session
	TTL      time.Duration   // of SessionByID: time until an unused session is forgotten
	Sweep    time.Duration   // of SessionByID: interval of removals
}

// A SessionSource is the place of a session's name in a request: one of the two fields.
type SessionSource struct {
	Header string
	Cookie string
}

const (
	defaultSessionHeader = "x-session-token"
	defaultSessionID     = "x-session-id"
	defaultSessionTTL    = 300
	defaultSessionSweep  = 10

	cookieHeader       = "cookie"
	sessionIDAttribute = "SessionIDDataKey" // attribute of a session-id-producer
)

// sessionParameters are the parameters of both session plugins.
type sessionParameters struct {
	Strategy    SessionStrategy `yaml:"strategy"`
	ProfileName string          `yaml:"profileName,omitempty"`
	Encoded     encodedSession  `yaml:"encodedEndpointHeaderConfig"`
	ByID        sessionIDConfig `yaml:"sessionIdConfig"`

	made Session
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

func defaultSession() sessionParameters {
	return sessionParameters{
		Strategy: SessionInHeader,
		Encoded:  encodedSession{Header: defaultSessionHeader},
		ByID: sessionIDConfig{
			Sources:            []sessionIDSource{{Header: defaultSessionID}},
			EvictionTTLSeconds: defaultSessionTTL, EvictionSweepSeconds: defaultSessionSweep,
		},
	}
}

func (p *sessionParameters) check(c checker) {
	c.require(p.ProfileName == "", "profileName", "only one profile exists: leave it out")
	c.oneOf("strategy", string(p.Strategy), string(SessionInHeader), string(SessionByID))
	p.made = Session{Strategy: p.Strategy}
	if p.Strategy == SessionInHeader {
		p.made.Header = c.header("encodedEndpointHeaderConfig.header", p.Encoded.Header)
		return
	}
	c.require(len(p.ByID.Sources) > 0, "sessionIdConfig.sources", "it is empty: leave it out for the header %s", defaultSessionID)
	for i, source := range p.ByID.Sources {
		p.made.Sources = append(p.made.Sources, c.source(indexed("sessionIdConfig.sources", i), source))
	}
	c.seconds("sessionIdConfig.evictionTtlSeconds", p.ByID.EvictionTTLSeconds)
	c.seconds("sessionIdConfig.evictionSweepSeconds", p.ByID.EvictionSweepSeconds)
	p.made.TTL, p.made.Sweep = seconds(p.ByID.EvictionTTLSeconds), seconds(p.ByID.EvictionSweepSeconds)
}

// source reads one source of a session's name. An attribute is the result of a session-id-producer.
func (c checker) source(at string, s sessionIDSource) SessionSource {
	c.require((s.Header == "") != (s.Attribute == ""), at, "give either a header or an attribute")
	switch {
	case s.Header != "":
		return SessionSource{Header: c.header(at+".header", s.Header)}
	case s.Attribute == "":
		return SessionSource{}
	}
	c.require(s.Attribute == sessionIDAttribute, at+".attribute",
		"%.100q is unknown: only %s of a session-id-producer is supported; use a header for other names of sessions", s.Attribute, sessionIDAttribute)
	p, ok := c.declared[cmp.Or(s.Producer, sessionIDProducer)]
	if !ok || p.kind != sessionIDProducer {
		c.require(false, at+".attribute", "no session-id-producer provides it: declare one, or give the header")
		return SessionSource{}
	}
	if producer, ok := p.parameters.(*sessionIDParameters); ok {
		return SessionSource{Header: strings.ToLower(producer.HeaderName), Cookie: producer.CookieName}
	}
	return SessionSource{}
}

// session records the setting of a plugin in use. All plugins share one.
func (c checker) session(s Session) {
	if c.made.Session != nil && !reflect.DeepEqual(*c.made.Session, s) {
		c.errorf(c.path, "its sessions differ from those of another plugin: give both the same parameters")
		return
	}
	c.made.Session = &s
	if s.Header != "" {
		c.headers[s.Header] = true
	}
	for _, source := range s.Sources {
		if source.Cookie != "" {
			c.headers[cookieHeader] = true
		} else {
			c.headers[source.Header] = true
		}
	}
}

// The two plugins.
type (
	sessionFilterParameters sessionParameters
	sessionScorerParameters sessionParameters
)

func (p *sessionFilterParameters) check(c checker) { (*sessionParameters)(p).check(c) }

func (*sessionFilterParameters) filter() scheduling.Filter { return scheduling.SessionFilter{} }

func (p *sessionFilterParameters) use(c checker) { c.session(p.made) }

func (p *sessionScorerParameters) check(c checker) { (*sessionParameters)(p).check(c) }

func (*sessionScorerParameters) scorer() scheduling.Scorer { return scheduling.SessionScorer{} }

func (p *sessionScorerParameters) use(c checker) { c.session(p.made) }

// sessionIDParameters are the sources of a session-id-producer.
type sessionIDParameters struct {
	HeaderName string `yaml:"headerName,omitempty"`
	CookieName string `yaml:"cookieName,omitempty"`
}

func (p *sessionIDParameters) check(c checker) {
	c.require((p.HeaderName == "") != (p.CookieName == ""), "", "give either headerName or cookieName")
	if p.HeaderName != "" {
		c.header("headerName", p.HeaderName)
	}
}
