package lbapi

import (
	"regexp"
	"strings"
)

// SessionPersistenceConfiguration binds clients to backends by a cookie of the application.
type SessionPersistenceConfiguration struct {
	CookieName      string `json:"cookieName"`
	DisableFallback *bool  `json:"disableFallback,omitempty"`
}

// LBCookieSessionPersistenceConfiguration binds clients to backends by a cookie of the load balancer.
type LBCookieSessionPersistenceConfiguration struct {
	CookieName      *string `json:"cookieName,omitempty"`
	DisableFallback *bool   `json:"disableFallback,omitempty"`
	Domain          *string `json:"domain,omitempty"`
	Path            *string `json:"path,omitempty"`
	MaxAgeInSeconds *int    `json:"maxAgeInSeconds,omitempty"`
	IsSecure        *bool   `json:"isSecure,omitempty"`
	IsHTTPOnly      *bool   `json:"isHttpOnly,omitempty"`
}

// DefaultCookie is the name of the cookie by which the load balancer knows sessions.
const DefaultCookie = "X-Oracle-BMC-LBS-Route"

// AnyCookie as the name of an application's cookie means all of its cookies.
const AnyCookie = "*"

var cookieDomain = regexp.MustCompile(`^\.?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$`)

func (s *SessionPersistenceConfiguration) validate() *Error {
	if s == nil {
		return nil
	}
	var c check
	c.has(s.CookieName != "", "cookieName")
	c.that(len(s.CookieName) <= maxText && token.MatchString(s.CookieName), "Invalid cookieName '%.60s'", s.CookieName)
	return c.err
}

func (s *LBCookieSessionPersistenceConfiguration) validate() *Error {
	if s == nil {
		return nil
	}
	var c check
	name, age := valueOr(s.CookieName, DefaultCookie), valueOr(s.MaxAgeInSeconds, 1)
	c.that(len(name) <= maxText && token.MatchString(name), "Invalid cookieName '%.60s'", name)
	c.that(age >= 1, "Invalid maxAgeInSeconds %d", age)
	if s.Domain != nil {
		c.that(len(*s.Domain) <= maxText && cookieDomain.MatchString(*s.Domain), "Invalid domain '%.60s' of the cookie", *s.Domain)
	}
	if s.Path != nil {
		c.that(len(*s.Path) <= maxPath && strings.HasPrefix(*s.Path, "/") && !strings.ContainsFunc(*s.Path, notInPath),
			"Invalid path '%.60s' of the cookie", *s.Path)
	}
	return c.err
}

// notInPath reports whether a character cannot be in the path of a cookie, or of a route.
func notInPath(r rune) bool { return r <= ' ' || r == ';' || r >= 0x7f }
