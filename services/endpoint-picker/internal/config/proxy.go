package config

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"fairlead.dev/services/endpoint-picker/internal/listener/httpproxy"
)

const (
	flagProxyAddress     = "proxy-bind-address"
	flagProxyTLS         = "proxy-tls"
	flagProxyServerConns = "proxy-max-connections-per-server"
	flagProxyAttempts    = "proxy-max-attempts"
)

// defaultServerConns is four times the largest number of requests that model servers run at once by default (SGLang: 4096 with
// much memory, vLLM: 1024 on the largest accelerators), and a third of the ports that a host has for connections to one address.
const defaultServerConns = 8192

// defaultAttempts is the number of servers that a request is sent to.
const defaultAttempts = 3

// Proxy configures the listener for clients without a gateway. The limits of requests are those of ext_proc.
type Proxy struct {
	Address        string // empty: the listener is off
	TLS            bool   // with the certificate of ext_proc
	Forwarded      httpproxy.ForwardedPolicy
	MaxServerConns int
	MaxAttempts    int // servers that a request is sent to
}

// ListenPort returns the port of the listener, 0 if it is off or any.
func (p *Proxy) ListenPort() int { return portOf(p.Address) }

func (p *Proxy) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.Address, flagProxyAddress, p.Address,
		"Address of the proxy listener, for clients without a gateway, such as :8080. Empty: no listener.")
	fs.BoolVar(&p.TLS, flagProxyTLS, p.TLS,
		"Serve the proxy listener over TLS, with the certificate and the client authorities of ext_proc.")
	fs.Var(&p.Forwarded, "proxy-forwarded-headers",
		"X-Forwarded-For, -Proto and -Host for model servers: replace (what clients send is dropped), append, or off (what clients send "+
			"is passed on).")
	fs.IntVar(&p.MaxServerConns, flagProxyServerConns, p.MaxServerConns,
		"Maximum number of connections of the proxy to one model server. Beyond it, requests for the server get 429. 0 means no limit.")
	fs.IntVar(&p.MaxAttempts, flagProxyAttempts, p.MaxAttempts,
		"Maximum number of model servers that the proxy sends a request to, if the servers before fail without any content. 1 means no "+
			"other attempt.")
}

func (p *Proxy) validateFlags(g GRPC) error {
	if p.Address != "" {
		if err := validateHostPort(flagProxyAddress, p.Address); err != nil {
			return err
		}
	}
	switch {
	case p.TLS && p.Address == "":
		return errors.New("--" + flagProxyTLS + " has no effect without --" + flagProxyAddress + ": give both")
	case p.TLS && !g.Secure:
		return errors.New("--" + flagProxyTLS + " needs the certificate that --" + flagSecureServing +
			"=false disables: leave one of them out")
	case p.MaxServerConns < 0:
		return fmt.Errorf("--%s %d is negative: give 0 for no limit", flagProxyServerConns, p.MaxServerConns)
	case p.MaxAttempts < 1:
		return fmt.Errorf("--%s %d is less than 1: give 1 to send a request to the picked server only", flagProxyAttempts, p.MaxAttempts)
	}
	return nil
}
