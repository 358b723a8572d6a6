package run

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/leader"
	"fairlead.dev/pkg/logging"
)

// Options are flags of services in which one elected replica writes.
type Options struct {
	Kube      kube.Options
	HTTP      httpserver.Options
	Logging   logging.Options
	Leader    leader.Options
	Work      controller.Options
	Discovery time.Duration // between two checks which kinds the API server serves
}

// DefaultOptions returns the defaults of all flags.
func DefaultOptions() Options {
	return Options{
		Kube: kube.DefaultOptions(), HTTP: httpserver.DefaultOptions(), Logging: logging.DefaultOptions(), Leader: leader.DefaultOptions(),
		Work: controller.DefaultOptions(), Discovery: 30 * time.Second,
	}
}

// AddFlags binds all flags. The descriptions of --workers and --max-retry-delay name what the service reconciles.
func (o *Options) AddFlags(fs *pflag.FlagSet, workers, maxRetryDelay string) {
	o.Kube.AddFlags(fs)
	o.HTTP.AddFlags(fs)
	o.Logging.AddFlags(fs)
	o.Leader.AddFlags(fs)
	fs.DurationVar(&o.Discovery, "discovery-interval", o.Discovery,
		"Interval for checking which kinds the API server serves. CRDs can be installed and removed at run time.")
	fs.IntVar(&o.Work.Workers, "workers", o.Work.Workers, workers)
	fs.DurationVar(&o.Work.LastRetry, "max-retry-delay", o.Work.LastRetry, maxRetryDelay)
}

// Validate returns an error for each flag with an invalid value.
func (o *Options) Validate() error {
	errs := []error{o.Kube.Validate(), o.HTTP.Validate(), o.Logging.Validate(), o.Leader.Validate()}
	if o.Work.Workers < 1 {
		errs = append(errs, fmt.Errorf("--workers %d is less than one", o.Work.Workers))
	}
	if o.Discovery < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("--discovery-interval %s is shorter than 100ms", o.Discovery))
	}
	if o.Work.LastRetry < time.Second {
		errs = append(errs, fmt.Errorf("--max-retry-delay %s is shorter than a second", o.Work.LastRetry))
	}
	return errors.Join(errs...)
}
