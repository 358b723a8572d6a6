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

// Options says where to listen. An address that is empty or "0" switches its server off.
type Options struct {
	MetricsAddress string
	HealthAddress  string
	EnablePprof    bool
}

// DefaultOptions returns the ports that all services share, with pprof off.
func DefaultOptions() Options {
	return Options{MetricsAddress: ":9090", HealthAddress: ":8081"}
}

// AddFlags binds the options to the flags that every service has.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.MetricsAddress, metricsFlag, o.MetricsAddress, `Address of /metrics; "0" switches it off.`)
	fs.StringVar(&o.HealthAddress, healthFlag, o.HealthAddress, `Address of /healthz and /readyz; "0" switches it off.`)
	fs.BoolVar(&o.EnablePprof, pprofFlag, o.EnablePprof, "Serve /debug/pprof/ on the metrics address.")
}

// Validate names the flag with a value that cannot be used.
func (o Options) Validate() error {
	if err := validateAddress(metricsFlag, o.MetricsAddress); err != nil {
		return err
	}
	if err := validateAddress(healthFlag, o.HealthAddress); err != nil {
		return err
	}
	if o.EnablePprof && off(o.MetricsAddress) {
		return errors.New("--" + pprofFlag + " needs --" + metricsFlag)
	}
	return nil
}

func validateAddress(flag, address string) error {
	if off(address) {
		return nil
	}
	if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
		return fmt.Errorf("--%s %q is not host:port: %w", flag, address, err)
	}
	return nil
}

func off(address string) bool {
	return address == "" || address == "0"
}
