package balancer

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
	"fairlead.dev/services/endpoint-picker/internal/session"
)

const headerCookie = "cookie"

// findSession returns the server that the session of a request is bound to, and the name of the session, if any.
func findSession(c *pickerconfig.Session, t *session.Table, x *exchange.Exchange) (server, id string) {
	switch {
	case c == nil:
		return "", ""
	case c.Strategy == pickerconfig.SessionInHeader:
		name, err := base64.StdEncoding.DecodeString(x.Incoming.Headers.Get(c.Header))
		if err != nil {
			return "", "" // not ours: the client gets a new one
		}
		return string(name), ""
	}
	if id = sessionID(c.Sources, x.Incoming.Headers); id == "" {
		return "", ""
	}
	return t.Server(id, x.Arrived, c.TTL), id
}

// bindSession binds a session to the picked server, for later requests.
func bindSession(c *pickerconfig.Session, t *session.Table, x *exchange.Exchange, id string) {
	switch name := x.Endpoint.Server().Name; {
	case c == nil:
	case c.Strategy == pickerconfig.SessionInHeader:
		x.Reply = append(x.Reply, api.Header{Name: c.Header, Value: base64.StdEncoding.EncodeToString([]byte(name))})
	case id != "":
		t.Bind(id, name, x.Arrived)
	}
}

// sessionID returns the name of the session in a request.
func sessionID(sources []pickerconfig.SessionSource, headers api.Headers) string {
	for _, s := range sources {
		id := headers.Get(s.Header)
		if s.Cookie != "" {
			id = cookie(headers.Get(headerCookie), s.Cookie)
		}
		if id != "" {
			return id
		}
	}
	return ""
}

// cookie returns the value of a cookie.
func cookie(header, name string) string {
	for pair := range strings.SplitSeq(header, ";") {
		if key, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && key == name {
			return value
		}
	}
	return ""
}

// sweepInterval is the default interval between removals of expired sessions.
const sweepInterval = 10 * time.Second

// Run removes expired sessions until ctx ends.
func (b *Balancer) Run(ctx context.Context) {
	for {
		wait := sweepInterval
		c := b.configs.Current().Session
		if c != nil && c.Sweep > 0 {
			wait = c.Sweep
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if c != nil {
			b.sessions.Sweep(b.clock.Now().Add(-c.TTL))
		}
	}
}
