package promclient

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/settings"
)

// Config says which Prometheus to ask and how. Package settings has checked its address.
type Config struct {
	settings.Prometheus

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

// queryURL returns the address of queries.
func (c *Config) queryURL() (*url.URL, error) {
	if c.BaseURL == "" {
		return nil, errors.New("PROMETHEUS_BASE_URL is not set: set it to the address of Prometheus, such as https://prometheus.monitoring:9090")
	}
	u, err := url.Parse(c.BaseURL)
	switch {
	case err != nil: // its text has the address, which may contain a password
		return nil, errors.New("PROMETHEUS_BASE_URL is not a URL")
	case u.User != nil:
		return nil, errors.New("PROMETHEUS_BASE_URL contains a user: remove it, and set PROMETHEUS_BEARER_TOKEN or PROMETHEUS_TOKEN_PATH")
	}
	return u.JoinPath("api/v1/query"), nil
}

// checkToken returns an error for a token that cannot be sent.
func (c *Config) checkToken() error {
	if c.BearerToken == "" {
		return nil
	}
	if _, err := cleanToken(string(c.BearerToken)); err != nil {
		return fmt.Errorf("PROMETHEUS_BEARER_TOKEN: %w", err)
	}
	return nil
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
