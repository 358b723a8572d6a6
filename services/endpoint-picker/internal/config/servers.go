package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"fairlead.dev/services/endpoint-picker/internal/discovery"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
)

const (
	flagServers         = "servers"
	flagServersCA       = "servers-ca-file"
	flagServersInsecure = "servers-insecure-skip-verify"
)

// maxServers is the maximum number of URLs. A name may have further addresses.
const maxServers = 1000

// Servers are model servers by their URLs, without a cluster.
type Servers struct {
	URLs       []string
	CAFile     string // certificate authorities of https servers; empty: those of the system
	SkipVerify bool   // accept any certificate
}

func (s *Servers) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&s.URLs, flagServers, s.URLs,
		"URLs of the model servers, for use without Kubernetes, with commas between them: http://10.0.0.1:8000,https://vllm.example.com. "+
			"Host names are resolved again and again; each of their addresses is a server.")
	fs.StringVar(&s.CAFile, flagServersCA, s.CAFile,
		"PEM file with the certificate authorities of https URLs in --"+flagServers+". Empty: those of the system.")
	fs.BoolVar(&s.SkipVerify, flagServersInsecure, s.SkipVerify, "Accept any certificate of the https URLs in --"+flagServers+".")
}

// Parse returns the servers of the URLs, or all problems.
func (s *Servers) Parse() ([]discovery.Server, error) {
	var servers []discovery.Server
	var problems []error
	secure, listed := false, map[string]string{}
	for _, text := range s.URLs {
		text = strings.TrimSpace(text)
		server, err := discovery.ParseServer(text)
		switch first := listed[server.Address()]; {
		case err != nil:
			problems = append(problems, fmt.Errorf("--%s %w", flagServers, err))
		case first != "":
			problems = append(problems, fmt.Errorf("--%s %q is listed twice, first as %q: leave one of them out", flagServers, text, first))
		default:
			listed[server.Address()] = text
		}
		secure = secure || server.TLS
		servers = append(servers, server)
	}
	if len(servers) > maxServers {
		problems = append(problems, fmt.Errorf("--%s has %d URLs: give at most %d", flagServers, len(servers), maxServers))
	}
	return servers, errors.Join(append(problems, s.validateTLS(secure))...)
}

func (s *Servers) validateTLS(secure bool) error {
	given := flagServersCA
	if s.SkipVerify {
		given = flagServersInsecure
	}
	switch {
	case s.SkipVerify && s.CAFile != "":
		return fmt.Errorf("--%s and --%s are mutually exclusive: give only one of them", flagServersCA, flagServersInsecure)
	case !secure && (s.SkipVerify || s.CAFile != ""):
		return fmt.Errorf("--%s has no effect without an https URL in --%s: leave it out", given, flagServers)
	}
	return nil
}

// TLS returns where the certificates of servers come from, and whether they are verified.
func (s *Servers) TLS() modelserver.Source {
	return modelserver.Source{CACertPath: s.CAFile, InsecureSkipVerify: &s.SkipVerify}
}

// validateSourceFlags refuses flags that say again, of metrics pages, what the URLs say.
func (s *Servers) validateSourceFlags(fs *pflag.FlagSet) error {
	var problems []error
	for _, flag := range []string{flagSourceScheme, flagSourceSkip} {
		if len(s.URLs) > 0 && fs.Changed(flag) {
			problems = append(problems, fmt.Errorf("--%s has no effect with --%s, whose URLs say how to read metrics: leave it out", flag,
				flagServers))
		}
	}
	return errors.Join(problems...)
}

// closeUnasked closes ports of gateways that no flag names, because requests come by other listeners.
func (g *GRPC) closeUnasked(fs *pflag.FlagSet) {
	g.Closed = !fs.Changed(FlagGRPCPort)
	g.HealthClosed = g.Closed && !fs.Changed(FlagGRPCHealthPort)
}
