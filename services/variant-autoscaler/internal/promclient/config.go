package promclient

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Config says which Prometheus to ask and how. The names in brackets are those of its keys in the ConfigMap.
type Config struct {
	URL       string // [PROMETHEUS_BASE_URL] with an optional path
	AllowHTTP bool   // accept http://: queries, answers and the token are then readable on the network

	InsecureSkipVerify bool   // [PROMETHEUS_TLS_INSECURE_SKIP_VERIFY]
	CAFile             string // [PROMETHEUS_CA_CERT_PATH] empty: the authorities of the system
	CertFile           string // [PROMETHEUS_CLIENT_CERT_PATH]
	KeyFile            string // [PROMETHEUS_CLIENT_KEY_PATH]
	ServerName         string // [PROMETHEUS_SERVER_NAME]

	Token     string // [PROMETHEUS_BEARER_TOKEN] wins over TokenFile
	TokenFile string // [PROMETHEUS_TOKEN_PATH] read again when it changes

	Timeout   time.Duration // of a query. Zero: 10 s
	MaxBytes  int64         // of an answer. Zero: 8 MiB
	MaxSeries int           // of an answer. Zero: 50 000
}

// Defaults of Config.
const (
	defaultTimeout = 10 * time.Second
	// defaultMaxBytes has room for 2900 pods with 25 values each.
	defaultMaxBytes  = 8 << 20
	defaultMaxSeries = 50_000
)

// Validate returns all mistakes of the configuration, each with the key to change.
func (c *Config) Validate() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if _, err := c.queryURL(); err != nil {
		problems = append(problems, err)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		problem("PROMETHEUS_CLIENT_CERT_PATH and PROMETHEUS_CLIENT_KEY_PATH need each other: set both or none")
	}
	if c.Token != "" {
		if _, err := cleanToken(c.Token); err != nil {
			problem("PROMETHEUS_BEARER_TOKEN: %w", err)
		}
	}
	if c.Timeout < 0 || c.MaxBytes < 0 || c.MaxSeries < 0 {
		problem("the timeout and the limits of answers must not be negative")
	}
	return errors.Join(problems...)
}

// queryURL returns the address of queries.
func (c *Config) queryURL() (*url.URL, error) {
	if c.URL == "" {
		return nil, errors.New("PROMETHEUS_BASE_URL is not set: set it to the address of Prometheus, such as https://prometheus.monitoring:9090")
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil: // its text has the address, which may contain a password
		return nil, errors.New("PROMETHEUS_BASE_URL is not a URL")
	case u.User != nil:
		return nil, errors.New("PROMETHEUS_BASE_URL contains a user: remove it, and set PROMETHEUS_BEARER_TOKEN or PROMETHEUS_TOKEN_PATH")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("PROMETHEUS_BASE_URL contains a query or a fragment: remove it")
	case u.Scheme == "http" && !c.AllowHTTP:
		return nil, fmt.Errorf("PROMETHEUS_BASE_URL %s is not encrypted: use https, or allow plain HTTP explicitly", c.URL)
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("PROMETHEUS_BASE_URL %q must begin with https://", c.URL)
	case u.Hostname() == "":
		return nil, fmt.Errorf("PROMETHEUS_BASE_URL %q has no host", c.URL)
	}
	return u.JoinPath("api/v1/query"), nil
}

func (c *Config) setDefaults() {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	if c.MaxSeries == 0 {
		c.MaxSeries = defaultMaxSeries
	}
}

// cleanToken returns a token without the white space around it.
func cleanToken(text string) (string, error) {
	token := strings.TrimSpace(text)
	if token == "" {
		return "", errors.New("the token is empty")
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", errors.New("the token contains characters that no HTTP header can have")
	}
	return token, nil
}
