package config

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/pkg/servingcert"
)

const (
	flagMinVersion   = "tls-min-version"
	flagCipherSuites = "tls-cipher-suites"
	flagMaxReceive   = "grpc-max-recv-msg-size"
	flagMaxSend      = "grpc-max-send-msg-size"
	flagMetricsAuth  = "metrics-endpoint-auth"
	flagMetricsCA    = "metrics-client-ca-file"
	flagMetricsCerts = "metrics-cert-dir"
	maxMessage       = math.MaxInt32 // the limit of a gRPC frame
)

// TLS configures the encryption of servers.
type TLS struct {
	Reload       bool          // certificates when their files change
	ReloadEvery  time.Duration // check interval; not a flag, because the kubelet updates files more slowly
	MinVersion   string
	CipherSuites []string
}

// MetricsEndpoint configures access to metrics, and their encryption.
type MetricsEndpoint struct {
	Auth         bool   // ask the API server
	flagGiven    bool   // the flag was given
	ClientCAFile string // authorities of required client certificates
	CertDir      string // folder with tls.crt and tls.key; empty: plaintext
}

// Messages limits the size of messages from and to gateways, in bytes. Zero: enough for the largest request body, and no
// limit for replies.
type Messages struct {
	MaxReceive Size
	MaxSend    Size
}

func (t *TLS) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&t.Reload, "enable-cert-reload", t.Reload, "Reload certificates when their files change.")
	fs.StringVar(&t.MinVersion, flagMinVersion, t.MinVersion,
		"Minimum TLS version: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13.")
	fs.StringSliceVar(&t.CipherSuites, flagCipherSuites, t.CipherSuites,
		"Cipher suites of TLS 1.2 and older, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256. Empty: the defaults of Go. The suites of TLS "+
			"1.3 cannot be configured.")
}

// Options returns the settings for a server.
func (t *TLS) Options() (servingcert.Options, error) {
	version, err := servingcert.ParseVersion(t.MinVersion)
	if err != nil {
		return servingcert.Options{}, fmt.Errorf("--%s %w", flagMinVersion, err)
	}
	suites, err := servingcert.ParseCipherSuites(t.CipherSuites)
	if err != nil {
		return servingcert.Options{}, fmt.Errorf("--%s %w", flagCipherSuites, err)
	}
	return servingcert.Options{MinVersion: version, CipherSuites: suites}, nil
}

func (t *TLS) validateFlags() error {
	_, err := t.Options()
	return err
}

func (m *MetricsEndpoint) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&m.Auth, flagMetricsAuth, m.Auth,
		"Require a bearer token for metrics and debug pages, and ask the Kubernetes API server whether its user may get the path.")
	fs.StringVar(&m.CertDir, flagMetricsCerts, m.CertDir, "Folder with tls.crt and tls.key for the metrics address. Empty: no TLS.")
	fs.StringVar(&m.ClientCAFile, flagMetricsCA, m.ClientCAFile,
		"PEM file with certificate authorities. Clients of the metrics address need a certificate from one of them.")
}

func (m *MetricsEndpoint) validateFlags(p Pool) error {
	if m.Auth && p.IsLocal() {
		source := flagEndpointsFile
		if p.File == "" {
			source = flagServers
		}
		return errors.New("--" + flagMetricsAuth + " needs the API server, which --" + source + " does not use: leave one of them out")
	}
	if m.ClientCAFile != "" && m.CertDir == "" {
		return errors.New("--" + flagMetricsCA + " has no effect without --" + flagMetricsCerts + ": give both")
	}
	return nil
}

func (m *Messages) addFlags(fs *pflag.FlagSet) {
	fs.Var(&m.MaxReceive, flagMaxReceive,
		"Maximum size of a gRPC message from a gateway, such as 10MiB. 0: enough for the largest request body.")
	fs.Var(&m.MaxSend, flagMaxSend, "Maximum size of a gRPC message to a gateway. 0: no limit.")
}

func (m *Messages) validateFlags() error {
	for flag, size := range map[string]*Size{flagMaxReceive: &m.MaxReceive, flagMaxSend: &m.MaxSend} {
		if *size < 0 || *size > maxMessage {
			return fmt.Errorf("--%s %s is out of range: give up to 2Gi-1, or 0 for the default", flag, size)
		}
	}
	return nil
}
