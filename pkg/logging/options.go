package logging

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const (
	// FormatJSON writes one JSON object a line, for log collectors.
	FormatJSON = "json"
	// FormatConsole writes tab-separated text, for people.
	FormatConsole = "console"
)

var (
	levels  = []string{"debug", "info", "warn", "error"}
	formats = []string{FormatJSON, FormatConsole}
)

// Options says how much is logged and in which form.
type Options struct {
	Level  string
	Format string
}

// DefaultOptions returns level info in JSON.
func DefaultOptions() Options {
	return Options{Level: "info", Format: FormatJSON}
}

// AddFlags binds the options to the flags that every service has.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Level, "log-level", o.Level, "Lowest level that is logged: "+strings.Join(levels, ", ")+".")
	fs.StringVar(&o.Format, "log-format", o.Format, "Form of the log lines: "+strings.Join(formats, ", ")+".")
}

// Validate names the flag with a value that New would refuse.
func (o Options) Validate() error {
	if !slices.Contains(levels, o.Level) {
		return fmt.Errorf("--log-level %q is not one of %s", o.Level, strings.Join(levels, ", "))
	}
	if !slices.Contains(formats, o.Format) {
		return fmt.Errorf("--log-format %q is not one of %s", o.Format, strings.Join(formats, ", "))
	}
	return nil
}
