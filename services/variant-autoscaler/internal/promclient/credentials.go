package promclient

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// stamp identifies the content of a file. A projected volume replaces files by other ones, so times differ.
type stamp struct {
	at   time.Time
	size int64
}

func stampOf(name string) stamp {
	if name == "" {
		return stamp{}
	}
	info, err := os.Stat(name)
	if err != nil {
		return stamp{size: -1}
	}
	return stamp{info.ModTime(), info.Size()}
}

// credentials follow the files of a Config. Files that cannot be read leave the last good credentials in use.
type credentials struct {
	config *Config
	log    *zap.Logger

	mu        sync.Mutex
	token     string
	tokenRead stamp
	transport *http.Transport
	filesRead [3]stamp // of authorities, certificate and key
}

// bearerToken returns the token of the next query, or none. It reads the file if it changed, and with fresh in any case.
func (c *credentials) bearerToken(fresh bool) (string, error) { //nolint:revive // the caller knows whether a server refused the last one
	if c.config.BearerToken != "" {
		return cleanToken(string(c.config.BearerToken))
	}
	if c.config.TokenPath == "" {
		return "", nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := stampOf(c.config.TokenPath)
	if !fresh && c.token != "" && now == c.tokenRead {
		return c.token, nil
	}
	text, err := ReadSmallFile(c.config.TokenPath)
	var token string
	if err == nil {
		token, err = cleanToken(string(text))
	}
	switch {
	case err == nil:
		c.token = token
	case c.token == "":
		return "", fmt.Errorf("read the token of Prometheus: %w: check PROMETHEUS_TOKEN_PATH", err)
	case now != c.tokenRead:
		c.log.Warn("Kept the last token of Prometheus, because its file cannot be read: check PROMETHEUS_TOKEN_PATH", zap.Error(err))
	}
	c.tokenRead = now
	return c.token, nil
}

// currentTransport returns the transport of the next query, with the certificates of now.
func (c *credentials) currentTransport() (*http.Transport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := [3]stamp{stampOf(c.config.CACertPath), stampOf(c.config.ClientCertPath), stampOf(c.config.ClientKeyPath)}
	if c.transport != nil && now == c.filesRead {
		return c.transport, nil
	}
	settings, err := c.config.tlsConfig()
	if err != nil && c.transport == nil {
		return nil, err
	}
	c.filesRead = now
	if err != nil {
		c.log.Warn("Kept the last certificates for Prometheus, because their files cannot be used", zap.Error(err))
		return c.transport, nil
	}
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
	c.transport = newTransport(settings)
	return c.transport, nil
}

// newTransport returns a transport whose connections end by themselves, so that a replaced one leaves nothing behind.
func newTransport(settings *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext, // a host that does not answer
		TLSClientConfig:        settings,
		TLSHandshakeTimeout:    10 * time.Second, // likewise
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    8,                // more than queries at a time
		IdleConnTimeout:        90 * time.Second, // more than the usual interval of passes
		MaxResponseHeaderBytes: 64 << 10,         // answers have few headers
	}
}

func (c *Config) tlsConfig() (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName,
		InsecureSkipVerify: c.InsecureSkipVerify} //nolint:gosec // as configured
	if c.CACertPath != "" {
		var err error
		if settings.RootCAs, err = ReadAuthorities(c.CACertPath, "Prometheus", "PROMETHEUS_CA_CERT_PATH"); err != nil {
			return nil, err
		}
	}
	if c.ClientCertPath == "" {
		return settings, nil
	}
	certificate, err := ReadSmallFile(c.ClientCertPath)
	if err != nil {
		return nil, fmt.Errorf("read the client certificate for Prometheus: %w: check PROMETHEUS_CLIENT_CERT_PATH", err)
	}
	key, err := ReadSmallFile(c.ClientKeyPath)
	if err != nil {
		return nil, fmt.Errorf("read the client key for Prometheus: %w: check PROMETHEUS_CLIENT_KEY_PATH", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("the client certificate %s and key %s for Prometheus: %w", c.ClientCertPath, c.ClientKeyPath, err)
	}
	settings.Certificates = []tls.Certificate{pair}
	return settings, nil
}
