package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// FlagDecisionAddress is the name of the flag with the address of the decision API.
const FlagDecisionAddress = "decision-bind-address"

const (
	flagDecisionTLS     = "decision-tls"
	flagDecisionTimeout = "decision-timeout"
)

// Decision configures the decision API. The limits of its calls and open picks are those of ext_proc.
type Decision struct {
	Address string // empty: disabled
	TLS     bool   // with the certificate and the client certificates of ext_proc
	Timeout time.Duration
}

// IsEnabled reports whether the decision API is served.
func (d Decision) IsEnabled() bool { return d.Address != "" }

// ListenPort returns the port of the address, 0 if it is any or disabled.
func (d Decision) ListenPort() int { return portOf(d.Address) }

// portOf returns the port of a listen address, 0 if it has no number.
func portOf(address string) int {
	_, text, _ := net.SplitHostPort(address)
	if port, err := strconv.ParseUint(text, 10, 16); err == nil {
		return int(port)
	}
	return 0
}

func (d *Decision) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&d.Address, FlagDecisionAddress, d.Address,
		"Listen address of the decision API, such as :9008: picks over HTTP, for load balancers without ext_proc. Empty: disabled.")
	fs.BoolVar(&d.TLS, flagDecisionTLS, d.TLS,
		"Serve the decision API over TLS, with the certificate, the client authorities and the client names of ext_proc.")
	fs.DurationVar(&d.Timeout, flagDecisionTimeout, d.Timeout,
		"Time after a pick, or after the report of its first token, in which its outcome must come. Set it above the duration of the "+
			"longest response.")
}

func (d Decision) validateFlags(g GRPC) error {
	if !d.IsEnabled() {
		if d.TLS {
			return errors.New("--" + flagDecisionTLS + " has no effect without --" + FlagDecisionAddress + ": give both")
		}
		return nil
	}
	if err := validateHostPort(FlagDecisionAddress, d.Address); err != nil {
		return err
	}
	switch {
	case d.TLS && !g.Secure:
		return fmt.Errorf("--%s needs --%s, whose certificate it uses: give both", flagDecisionTLS, flagSecureServing)
	case g.ClientCAFile != "" && !d.TLS:
		return fmt.Errorf("--%s is for ext_proc, and --%s lets others in without a certificate: add --%s", flagClientCA,
			FlagDecisionAddress,
			flagDecisionTLS)
	case d.Timeout < time.Second:
		return fmt.Errorf("--%s %s is too short: give at least 1s", flagDecisionTimeout, d.Timeout)
	}
	return nil
}
