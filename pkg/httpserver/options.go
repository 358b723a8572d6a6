package httpserver

import (
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"
)

const (
	metricsFlag = "metrics-bind-address"
	healthFlag  = "health-probe-bind-address"
	pprofFlag   = "enable-pprof"
)

// Options sets the listen addresses. An address that is empty or "0" disables its server.
type Options struct {
	MetricsAddress string
	HealthAddress  string
	EnablePprof    bool
}

// DefaultOptions returns the ports that all services use, with pprof disabled.
func DefaultOptions() Options {
	return Options{MetricsAddress: ":9090", HealthAddress: ":8081"}
}

// AddFlags binds the options to the flags that every service has.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.MetricsAddress, metricsFlag, o.MetricsAddress, `Listen address for /metrics. "0" disables it.`)
	fs.StringVar(&o.HealthAddress, healthFlag, o.HealthAddress, `Listen address for /healthz and /readyz. "0" disables it.`)
	fs.BoolVar(&o.EnablePprof, pprofFlag, o.EnablePprof, "Serve /debug/pprof/ on the metrics address.")
}

// Validate returns an error that names the first flag with an invalid value.
func (o Options) Validate() error {
	if err := validateAddress(metricsFlag, o.MetricsAddress); err != nil {
		return err
	}
	if err := validateAddress(healthFlag, o.HealthAddress); err != nil {
		return err
	}
	if o.EnablePprof && isDisabled(o.MetricsAddress) {
		return errors.New("--" + pprofFlag + " requires --" + metricsFlag)
	}
	return nil
}

func validateAddress(flag, address string) error {
	if isDisabled(address) {
		return nil
	}
	if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
		return fmt.Errorf("--%s %q is not host:port: %w", flag, address, err)
	}
	return nil
}

func isDisabled(address string) bool {
	return address == "" || address == "0"
}
