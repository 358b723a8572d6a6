package plugins

const typeSessionIDProducer = "session-id-producer"

// sessionIDAttribute is the attribute that stands for a session-id-producer in the sources of sessions.
const sessionIDAttribute = "SessionIDDataKey"

// sessionIDProducer names the place of a session's identifier: a header or a cookie.
type sessionIDProducer struct {
	HeaderName string `yaml:"headerName,omitempty"`
	CookieName string `yaml:"cookieName,omitempty"`
}

// Validate checks the parameters.
func (p *sessionIDProducer) Validate(c *Check) {
	c.Require((p.HeaderName == "") != (p.CookieName == ""), "", "give either headerName or cookieName")
	if p.HeaderName != "" {
		c.Header("headerName", p.HeaderName)
	}
}
