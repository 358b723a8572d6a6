package lbapi

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"fairlead.dev/deploy/emulators/ocilb/internal/redirect"
	"fairlead.dev/deploy/emulators/ocilb/internal/routing"
)

// Rule is a rule of a rule set. Its action decides which of the fields it has.
type Rule struct {
	Action string `json:"action"`

	Header string `json:"header,omitempty"`
	Value  string `json:"value,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	Suffix string `json:"suffix,omitempty"`

	Conditions     []RuleCondition `json:"conditions,omitempty"`
	Description    string          `json:"description,omitempty"`
	AllowedMethods []string        `json:"allowedMethods,omitempty"`
	StatusCode     *int            `json:"statusCode,omitempty"`

	RedirectURI  *RedirectURI `json:"redirectUri,omitempty"`
	ResponseCode *int         `json:"responseCode,omitempty"`

	AreInvalidCharactersAllowed *bool              `json:"areInvalidCharactersAllowed,omitempty"`
	HTTPLargeHeaderSizeInKB     *int               `json:"httpLargeHeaderSizeInKB,omitempty"`
	DefaultMaxConnections       *int               `json:"defaultMaxConnections,omitempty"`
	IPMaxConnections            []IPMaxConnections `json:"ipMaxConnections,omitempty"`
}

// RuleCondition is what a request must have for a rule to apply.
type RuleCondition struct {
	AttributeName  string `json:"attributeName"`
	AttributeValue string `json:"attributeValue"`
	Operator       string `json:"operator,omitempty"`
}

// RedirectURI is where a request is redirected: a field that is nil keeps that part of the request.
type RedirectURI struct {
	Protocol *string `json:"protocol,omitempty"`
	Host     *string `json:"host,omitempty"`
	Port     *int    `json:"port,omitempty"`
	Path     *string `json:"path,omitempty"`
	Query    *string `json:"query,omitempty"`
}

// IPMaxConnections limits the connections from some addresses.
type IPMaxConnections struct {
	IPAddresses    []string `json:"ipAddresses"`
	MaxConnections *int     `json:"maxConnections"`
}

// Actions of rules.
const (
	RuleAllow                = "ALLOW"
	RuleMethods              = "CONTROL_ACCESS_USING_HTTP_METHODS"
	RuleRedirect             = "REDIRECT"
	RuleAddRequestHeader     = "ADD_HTTP_REQUEST_HEADER"
	RuleExtendRequestHeader  = "EXTEND_HTTP_REQUEST_HEADER_VALUE"
	RuleRemoveRequestHeader  = "REMOVE_HTTP_REQUEST_HEADER"
	RuleAddResponseHeader    = "ADD_HTTP_RESPONSE_HEADER"
	RuleExtendResponseHeader = "EXTEND_HTTP_RESPONSE_HEADER_VALUE"
	RuleRemoveResponseHeader = "REMOVE_HTTP_RESPONSE_HEADER"
	RuleHeaderSize           = "HTTP_HEADER"
	RuleMaxConnections       = "IP_BASED_MAX_CONNECTIONS"
)

// Attributes of conditions.
const (
	SourceAddress    = "SOURCE_IP_ADDRESS"
	SourceVCN        = "SOURCE_VCN_ID"
	SourceVCNAddress = "SOURCE_VCN_IP_ADDRESS"
	RequestPath      = "PATH"
)

const (
	defaultMethodStatus   = 405
	defaultRedirectStatus = 302
	maxConditions         = 2
)

// methods are the names in the registry of HTTP methods.
var methods = strings.Fields(`
	ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR MKCOL MKREDIRECTREF
	MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PUT REBIND REPORT SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK
	UPDATE UPDATEREDIRECTREF VERSION-CONTROL
`)

// headerVariable is reserved in values of headers.
var headerVariable = regexp.MustCompile(`\$|\{[^}]*\}`)

// uniqueness returns a text that two rules of a listener cannot share, or nothing.
func (r *Rule) uniqueness() string {
	switch r.Action {
	case RuleMethods, RuleHeaderSize, RuleMaxConnections:
		return r.Action
	case RuleRedirect:
		if len(r.Conditions) > 0 {
			return r.Action + " of " + r.Conditions[0].AttributeValue
		}
	}
	return ""
}

// validate checks a rule of a request, and sets defaults.
func (r *Rule) validate() *Error {
	var c check
	c.has(r.Action != "", "action")
	c.that(len(r.Description) <= maxText, "The description of a rule is longer than %d characters", maxText)
	switch r.Action {
	case RuleAddRequestHeader, RuleAddResponseHeader:
		c.header(r)
		c.has(r.Value != "", "value")
	case RuleExtendRequestHeader, RuleExtendResponseHeader:
		c.header(r)
		c.has(r.Prefix != "" || r.Suffix != "", "prefix")
	case RuleRemoveRequestHeader, RuleRemoveResponseHeader:
		c.header(r)
	case RuleAllow:
		c.also(r.validateAllow())
	case RuleMethods:
		c.also(r.validateMethods())
	case RuleRedirect:
		c.also(r.validateRedirect())
	case RuleHeaderSize:
		c.has(r.AreInvalidCharactersAllowed != nil || r.HTTPLargeHeaderSizeInKB != nil, "httpLargeHeaderSizeInKB")
		c.that(slices.Contains([]int{8, 16, 32, 64}, valueOr(r.HTTPLargeHeaderSizeInKB, 8)), "Invalid httpLargeHeaderSizeInKB of a rule")
	case RuleMaxConnections:
		c.also(r.validateMaxConnections())
	default:
		c.that(false, "Invalid action '%.60s' of a rule", r.Action)
	}
	return c.err
}

// header checks the fields of a rule for headers.
func (c *check) header(r *Rule) {
	c.has(r.Header != "", "header")
	c.that(len(r.Header) <= maxText && token.MatchString(r.Header), "Invalid header '%.60s' of a rule", r.Header)
	for _, value := range []string{r.Value, r.Prefix, r.Suffix} {
		bad := strings.ContainsFunc(value, func(x rune) bool { return x < ' ' && x != '\t' || x == 0x7f })
		c.that(len(value) <= maxPath && !bad && !headerVariable.MatchString(value), "Invalid value '%.60s' for header '%.60s'", value,
			r.Header)
	}
}

func (r *Rule) validateAllow() *Error {
	var c check
	c.has(len(r.Conditions) > 0, "conditions")
	c.that(len(r.Conditions) <= maxConditions, "A rule with action %s has more than %d conditions", r.Action, maxConditions)
	if c.err != nil {
		return c.err
	}
	var names []string
	for _, condition := range r.Conditions {
		names = append(names, condition.AttributeName)
		c.has(condition.AttributeValue != "", "attributeValue")
		if condition.AttributeName == SourceVCN {
			c.ocids("attributeValue", []string{condition.AttributeValue})
			continue
		}
		_, err := netip.ParsePrefix(condition.AttributeValue)
		c.that(err == nil, "Invalid CIDR '%.60s' in a condition", condition.AttributeValue)
	}
	slices.Sort(names)
	allowed := [][]string{{SourceAddress}, {SourceVCN}, {SourceVCN, SourceVCNAddress}}
	c.that(slices.ContainsFunc(allowed, func(a []string) bool { return slices.Equal(a, names) }), "Action %s cannot have these conditions",
		r.Action)
	return c.err
}

func (r *Rule) validateMethods() *Error {
	var c check
	c.has(len(r.AllowedMethods) > 0, "allowedMethods")
	for i, name := range r.AllowedMethods {
		c.that(i < len(methods) && slices.Contains(methods, name), "Invalid HTTP method '%.60s' of a rule", name)
		c.that(c.err != nil || !slices.Contains(r.AllowedMethods[:i], name), "HTTP method '%.60s' is listed twice", name)
	}
	if r.StatusCode == nil {
		status := defaultMethodStatus
		r.StatusCode = &status
	}
	c.that(*r.StatusCode >= defaultReturnCode && *r.StatusCode <= maxReturnCode, "Invalid statusCode %d of a rule", *r.StatusCode)
	return c.err
}

func (r *Rule) validateRedirect() *Error {
	var c check
	c.has(len(r.Conditions) > 0, "conditions")
	c.that(len(r.Conditions) == 1 && r.Conditions[0].AttributeName == RequestPath, "A rule with action %s needs one condition %s",
		r.Action, RequestPath)
	if c.err != nil {
		return c.err
	}
	c.that(validPath(r.Conditions[0].AttributeValue), "Invalid path '%.60s' in a condition", r.Conditions[0].AttributeValue)
	c.that(routing.IsMatchType(r.Conditions[0].Operator), "Invalid operator '%.60s' in a condition", r.Conditions[0].Operator)
	if r.ResponseCode == nil {
		status := defaultRedirectStatus
		r.ResponseCode = &status
	}
	c.that(slices.Contains([]int{301, 302, 303, 307, 308}, *r.ResponseCode), "Invalid responseCode %d of a rule", *r.ResponseCode)
	c.also(r.RedirectURI.validate())
	return c.err
}

func (u *RedirectURI) validate() *Error {
	if u == nil {
		return nil
	}
	var c check
	protocol := valueOr(u.Protocol, redirect.Protocol)
	c.that(protocol == redirect.Protocol || strings.EqualFold(protocol, "HTTP") || strings.EqualFold(protocol, "HTTPS"),
		"Invalid protocol '%.60s' of a redirect", protocol)
	host, path, query, port := valueOr(u.Host,
		redirect.Host), valueOr(u.Path, redirect.Path), valueOr(u.Query, redirect.Query), valueOr(u.Port, 1)
	c.that(port >= 1 && port <= maxPort, "Invalid port %d of a redirect", port)
	c.that(host != "", "Invalid host '' of a redirect")
	c.that(path == "" || strings.HasPrefix(path, "/") || strings.HasPrefix(path, redirect.Path), "Invalid path '%.60s' of a redirect", path)
	for _, text := range []string{host, path, query} {
		c.that(len(text) <= maxPath && !strings.ContainsFunc(text, notInPath), "Invalid value '%.60s' of a redirect", text)
		_, err := redirect.Parse(text)
		c.that(err == nil, "Invalid value '%.60s' of a redirect: %v", text, err)
	}
	return c.err
}

func (r *Rule) validateMaxConnections() *Error {
	var c check
	c.has(r.DefaultMaxConnections != nil || len(r.IPMaxConnections) > 0, "defaultMaxConnections")
	c.that(valueOr(r.DefaultMaxConnections, 1) >= 0, "Invalid defaultMaxConnections of a rule")
	c.that(len(r.IPMaxConnections) <= maxObjects, "More than %d elements of ipMaxConnections", maxObjects)
	for _, limit := range r.IPMaxConnections {
		c.has(limit.MaxConnections != nil, "maxConnections")
		c.has(len(limit.IPAddresses) > 0, "ipAddresses")
		c.that(valueOr(limit.MaxConnections, 0) >= 0, "Invalid maxConnections of a rule")
		for _, cidr := range limit.IPAddresses {
			_, err := netip.ParsePrefix(cidr)
			c.that(err == nil, "Invalid CIDR '%.60s' of a rule", cidr)
		}
	}
	return c.err
}
