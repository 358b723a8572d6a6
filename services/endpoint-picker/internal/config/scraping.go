package config

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"fairlead.dev/services/endpoint-picker/internal/modelserver"
)

const (
	flagRefreshInterval = "refresh-metrics-interval"
	flagIdleInterval    = "refresh-metrics-idle-interval"
	flagRefreshBudget   = "refresh-metrics-budget"
	flagRefreshTimeout  = "refresh-metrics-timeout"
	flagStaleness       = "metrics-staleness-threshold"
	flagLeaseTimeout    = "lease-timeout"
)

func addScrapingFlags(fs *pflag.FlagSet, o *modelserver.Options) {
	fs.DurationVar(&o.Interval.Fastest, flagRefreshInterval, o.Interval.Fastest,
		"Scrape interval of a model server under load.")
	fs.DurationVar(&o.Interval.Slowest, flagIdleInterval, o.Interval.Slowest,
		"Scrape interval of an idle model server.")
	fs.Float64Var(&o.Budget, flagRefreshBudget, o.Budget,
		"Maximum number of scrapes per second of all model servers of all pools. Beyond it, every interval grows.")
	fs.DurationVar(&o.Timeout, flagRefreshTimeout, o.Timeout, "Timeout of one scrape.")
	fs.DurationVar(&o.StaleAfter, flagStaleness, o.StaleAfter,
		"Time of failing scrapes after which the picker prefers other model servers.")
	fs.BoolVar(&o.ProbeTokenizers, "probe-tokenizers", o.ProbeTokenizers,
		"Ask each model server once for the tokens of a built-in sample text (POST /tokenize), to know the tokens of a model before its "+
			"first answer.")
}

func validateScraping(o modelserver.Options) error {
	return errors.Join(validateIntervals(o), validateScrapingTimes(o))
}

func validateIntervals(o modelserver.Options) error {
	switch fastest, slowest := o.Interval.Fastest, o.Interval.Slowest; {
	case fastest < modelserver.MinInterval:
		return fmt.Errorf("--%s %s is too short: give at least %s", flagRefreshInterval, fastest, modelserver.MinInterval)
	case slowest < fastest:
		return fmt.Errorf("--%s %s is too short: give at least --%s, which is %s", flagIdleInterval, slowest, flagRefreshInterval, fastest)
	case !(o.Budget >= 1): // also true for NaN
		return fmt.Errorf("--%s %g is too small: give at least 1", flagRefreshBudget, o.Budget)
	}
	return nil
}

func validateScrapingTimes(o modelserver.Options) error {
	switch {
	case o.Timeout <= 0:
		return fmt.Errorf("--%s %s is not positive: give a duration such as 1s", flagRefreshTimeout, o.Timeout)
	case o.StaleAfter < 2*o.Interval.Fastest:
		return fmt.Errorf("--%s %s is too short: give at least twice --%s, which is %s", flagStaleness, o.StaleAfter, flagRefreshInterval,
			o.Interval.Fastest)
	}
	return nil
}

func (l Leases) validateFlags(o modelserver.Options) error {
	if slowest := o.Interval.Slowest; l.Timeout < slowest {
		return fmt.Errorf("--%s %s is too short: give at least --%s, which is %s", flagLeaseTimeout, l.Timeout, flagIdleInterval, slowest)
	}
	return nil
}
