package lbapi

import (
	"regexp"
	"time"
)

// HealthChecker is the health check of a backend set. Port 0 is the port of each backend.
type HealthChecker struct {
	Protocol          string `json:"protocol"`
	URLPath           string `json:"urlPath,omitempty"`
	Port              int    `json:"port"`
	ReturnCode        int    `json:"returnCode"`
	Retries           int    `json:"retries"`
	TimeoutInMillis   int    `json:"timeoutInMillis"`
	IntervalInMillis  int    `json:"intervalInMillis"`
	ResponseBodyRegex string `json:"responseBodyRegex"`
	IsForcePlainText  bool   `json:"isForcePlainText"`
}

// HealthCheckerDetails are a health check in a request.
type HealthCheckerDetails struct {
	Protocol          string  `json:"protocol"`
	URLPath           string  `json:"urlPath"`
	Port              int     `json:"port"`
	ReturnCode        *int    `json:"returnCode"`
	Retries           *int    `json:"retries"`
	TimeoutInMillis   *int    `json:"timeoutInMillis"`
	IntervalInMillis  *int    `json:"intervalInMillis"`
	ResponseBodyRegex *string `json:"responseBodyRegex"`
	IsForcePlainText  bool    `json:"isForcePlainText"`
}

// Defaults and bounds of the service. The acceptance tests of Terraform's provider have paths without a slash, and the return code 11.
// Reads of checks by TCP have the return code 0, so that it must be accepted.
const (
	defaultReturnCode = 200
	defaultRetries    = 3
	defaultTimeout    = 3 * time.Second
	defaultInterval   = 10 * time.Second
	defaultBody       = ".*"
	defaultPath       = "/"
	minInterval       = time.Second
	maxInterval       = 30 * time.Minute
	minTimeout        = time.Millisecond
	maxTimeout        = 10 * time.Minute
	maxRetries        = 100
	maxReturnCode     = 599
)

// HealthChecker returns the health check of a request.
func (d *HealthCheckerDetails) HealthChecker() (HealthChecker, *Error) {
	h := HealthChecker{
		Protocol: d.Protocol, URLPath: d.URLPath, Port: d.Port, ReturnCode: valueOr(d.ReturnCode, defaultReturnCode),
		Retries: valueOr(d.Retries, defaultRetries), TimeoutInMillis: valueOr(d.TimeoutInMillis, int(defaultTimeout.Milliseconds())),
		IntervalInMillis:  valueOr(d.IntervalInMillis, int(defaultInterval.Milliseconds())),
		ResponseBodyRegex: valueOr(d.ResponseBodyRegex, defaultBody), IsForcePlainText: d.IsForcePlainText,
	}
	var c check
	c.has(h.Protocol != "", "protocol")
	c.that(h.Protocol == "HTTP" || h.Protocol == "TCP", "Invalid protocol '%.60s' of the health checker", h.Protocol)
	if h.Protocol == "HTTP" && h.URLPath == "" {
		h.URLPath = defaultPath
	}
	for _, n := range []struct {
		name               string
		value, least, most int
	}{
		{"port", h.Port, 0, maxPort},
		{"intervalInMillis", h.IntervalInMillis, int(minInterval.Milliseconds()), int(maxInterval.Milliseconds())},
		{"timeoutInMillis", h.TimeoutInMillis, int(minTimeout.Milliseconds()), int(maxTimeout.Milliseconds())},
		{"retries", h.Retries, 1, maxRetries},
		{"returnCode", h.ReturnCode, 0, maxReturnCode},
	} {
		c.that(n.value >= n.least && n.value <= n.most, "Invalid %s %d of the health checker", n.name, n.value)
	}
	_, err := regexp.Compile(h.ResponseBodyRegex)
	c.that(err == nil, "Invalid responseBodyRegex of the health checker")
	return h, c.err
}

// UpdateHealthChecker replaces the health check of a set.
func (lb *LoadBalancer) UpdateHealthChecker(set string, d *HealthCheckerDetails) *Error {
	checker, err := d.HealthChecker()
	if err != nil {
		return err
	}
	s := lb.BackendSets[set]
	if s == nil {
		return NotFound("backend set", set)
	}
	c := *s
	c.HealthChecker = checker
	lb.BackendSets[set] = &c
	return nil
}
