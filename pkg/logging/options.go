package logging

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const (
	// FormatJSON writes one JSON object per line, for log collectors.
	FormatJSON = "json"
	// FormatConsole writes tab-separated text, for people.
	FormatConsole = "console"
)

var (
	levels  = []string{"debug", "info", "warn", "error"}
	formats = []string{FormatJSON, FormatConsole}
)

// Options configures level and format.
type Options struct {
	Level  string
	Format string
}

// DefaultOptions returns level info and format json.
func DefaultOptions() Options {
	return Options{Level: "info", Format: FormatJSON}
}

// AddFlags binds the options to the flags that every service has.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Level, "log-level", o.Level, "Minimum log level: "+strings.Join(levels, ", ")+".")
	fs.StringVar(&o.Format, "log-format", o.Format, "Log format: "+strings.Join(formats, ", ")+".")
}

// Validate returns an error that names the first flag with an invalid value.
func (o Options) Validate() error {
	if !slices.Contains(levels, o.Level) {
		return fmt.Errorf("--log-level %q is not one of %s", o.Level, strings.Join(levels, ", "))
	}
	if !slices.Contains(formats, o.Format) {
		return fmt.Errorf("--log-format %q is not one of %s", o.Format, strings.Join(formats, ", "))
	}
	return nil
}
