package settings

import (
	"net/url"
	"strconv"
	"strings"
)

// Keys of the optimization config about Prometheus. Environment variables have the same names.
const (
	keyBaseURL     = "PROMETHEUS_BASE_URL"
	keySkipVerify  = "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY"
	keyCACert      = "PROMETHEUS_CA_CERT_PATH"
	keyClientCert  = "PROMETHEUS_CLIENT_CERT_PATH"
	keyClientKey   = "PROMETHEUS_CLIENT_KEY_PATH"
	keyServerName  = "PROMETHEUS_SERVER_NAME"
	keyBearerToken = "PROMETHEUS_BEARER_TOKEN"
	keyTokenPath   = "PROMETHEUS_TOKEN_PATH"
)

var prometheusKeys = []string{keyBaseURL, keySkipVerify, keyCACert, keyClientCert, keyClientKey, keyServerName, keyBearerToken,
	keyTokenPath}

// Secret is a text that does not appear in logs.
type Secret string

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Prometheus says how to reach Prometheus. An empty BaseURL means that no valid address is known.
type Prometheus struct {
	BaseURL            string
	InsecureSkipVerify bool
	CACertPath         string
	ClientCertPath     string
	ClientKeyPath      string
	ServerName         string
	BearerToken        Secret // overrides TokenPath
	TokenPath          string
}

func parsePrometheus(values map[string]string, allowHTTP bool, w *warnings) Prometheus {
	p := Prometheus{
		BaseURL:            parseBaseURL(values[keyBaseURL], allowHTTP, w),
		InsecureSkipVerify: parseBool(keySkipVerify, values[keySkipVerify], w),
		CACertPath:         values[keyCACert],
		ClientCertPath:     values[keyClientCert],
		ClientKeyPath:      values[keyClientKey],
		ServerName:         values[keyServerName],
		BearerToken:        Secret(values[keyBearerToken]),
		TokenPath:          values[keyTokenPath],
	}
	if (p.ClientCertPath == "") != (p.ClientKeyPath == "") {
		w.addWarning(ReasonInvalid, keyClientCert, "ignored: set both %s and %s, or neither", keyClientCert, keyClientKey)
		p.ClientCertPath, p.ClientKeyPath = "", ""
	}
	return p
}

// parseBaseURL returns an empty text for an invalid address. Warnings do not quote it: it may contain a password.
func parseBaseURL(text string, allowHTTP bool, w *warnings) string {
	if text == "" {
		return ""
	}
	const advice = "set an address such as https://prometheus.monitoring.svc:9090"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		w.addWarning(ReasonInvalid, keyBaseURL, "ignored: not an address: %s", advice)
		return ""
	case u.Scheme != "https" && (u.Scheme != "http" || !allowHTTP):
		w.addWarning(ReasonInvalid, keyBaseURL, "ignored: the address must begin with https://: %s", advice)
		return ""
	}
	return strings.TrimRight(text, "/")
}

// fixedValues returns what cannot change while the process runs, as keys and values.
func (p *Prometheus) fixedValues() [][2]string {
	return [][2]string{
		{keyBaseURL, p.BaseURL}, {keySkipVerify, strconv.FormatBool(p.InsecureSkipVerify)}, {keyCACert, p.CACertPath},
		{keyClientCert, p.ClientCertPath}, {keyClientKey, p.ClientKeyPath}, {keyServerName, p.ServerName},
	}
}

// keepFixed returns p with the tokens of next, and warns of other differences.
func (p Prometheus) keepFixed(next Prometheus, w *warnings) Prometheus {
	after := next.fixedValues()
	for i, before := range p.fixedValues() {
		if before != after[i] {
			w.addWarning(ReasonImmutable, before[0], "ignored a change: this value cannot change while the controller runs; restart it, or restore the value")
		}
	}
	p.BearerToken, p.TokenPath = next.BearerToken, next.TokenPath
	return p
}
