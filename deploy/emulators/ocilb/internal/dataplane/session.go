package dataplane

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// affinity is the session persistence of a backend set. The cookie of a session has two parts: the session, which is that of the
// set's configuration and of the application's cookie, and the backend. So a session whose backend is gone is known as one.
//
//	cookie of the load balancer    every response of a backend to a client without a session begins one
//	cookie of the application      a response that sets the application's cookie begins a session, and a client that no longer
//	                               sends that cookie has none
type affinity struct {
	cookie      http.Cookie // without a value
	application string      // name of the application's cookie, empty for the load balancer's
	fallback    bool
	seed        string // of the parts of cookies
}

// newAffinity returns the session persistence of a backend set, or nil.
func newAffinity(id string, s *lbapi.BackendSet) *affinity {
	a := &affinity{fallback: true, cookie: http.Cookie{Name: lbapi.DefaultCookie, Path: "/"}} //nolint:gosec // the set decides about attributes
	own, application := s.LBCookieSessionPersistenceConfiguration, s.SessionPersistenceConfiguration
	switch {
	case own != nil:
		override(&a.cookie.Name, own.CookieName)
		override(&a.cookie.Path, own.Path)
		override(&a.cookie.Domain, own.Domain)
		override(&a.cookie.MaxAge, own.MaxAgeInSeconds)
		override(&a.cookie.Secure, own.IsSecure)
		override(&a.cookie.HttpOnly, own.IsHTTPOnly)
		a.fallback = own.DisableFallback == nil || !*own.DisableFallback
	case application != nil:
		a.application, a.fallback = application.CookieName, application.DisableFallback == nil || !*application.DisableFallback
	default:
		return nil
	}
	a.seed = strings.Join([]string{id, s.Name, a.cookie.Name, a.cookie.Domain, a.cookie.Path, a.application}, "\n")
	return a
}

// override sets a value, if there is one.
func override[T any](to, value *T) {
	if value != nil {
		*to = *value
	}
}

// session is what a set knows of the session of a request.
type session struct {
	key     string // the value of the application's cookie
	bound   bool   // whether the client has a session
	backend string // of the session; empty if it is gone
}

// find returns the session of a request among the names of backends.
func (a *affinity) find(r *http.Request, backends []string) session {
	key, ok := a.key(r.Cookies())
	if !ok {
		return session{}
	}
	s := session{key: key}
	for _, c := range r.CookiesNamed(a.cookie.Name) {
		first, second, _ := strings.Cut(c.Value, ".")
		if first != a.digest("session", key) {
			continue
		}
		s.bound = true
		if i := slices.IndexFunc(backends, func(name string) bool { return second == a.digest("backend", key, name) }); i >= 0 {
			s.backend = backends[i]
			break
		}
	}
	return s
}

// key returns the part of a session that is the application's, and whether a client with these cookies can have a session.
func (a *affinity) key(cookies []*http.Cookie) (string, bool) {
	if a.application == "" {
		return "", true
	}
	for _, c := range cookies {
		switch {
		case a.application == c.Name:
			return c.Value, true
		case a.application == lbapi.AnyCookie && c.Name != a.cookie.Name:
			return "", true
		}
	}
	return "", false
}

// mark adds the cookie of a session to a response of a backend, unless the client has it.
func (a *affinity) mark(response *http.Response, s session, backend string) {
	key, begins := s.key, s.backend != backend
	if a.application != "" {
		// A client that falls back to another backend has the cookie of the application already.
		begins = begins && s.bound
		now := time.Now()
		for _, c := range response.Cookies() {
			alive := c.MaxAge >= 0 && (c.Expires.IsZero() || c.Expires.After(now))
			switch {
			case a.application == c.Name:
				key, begins = c.Value, alive
			case a.application == lbapi.AnyCookie && alive:
				begins = true
			}
		}
	}
	if begins {
		c := a.cookie //nolint:gosec // as above
		c.Value = a.digest("session", key) + "." + a.digest("backend", key, backend)
		response.Header.Add("Set-Cookie", c.String())
	}
}

func (a *affinity) digest(parts ...string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.seed + "\n" + strings.Join(parts, "\n")))
	return fmt.Sprintf("%016x", h.Sum64())
}
