package service

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"fairlead.dev/pkg/strictyaml"
)

const seeHelp = "see --help"

// FlagError returns an error of pflag with the name of the flag, its problem and its fix.
func FlagError(fs *pflag.FlagSet, err error) error {
	var (
		unknown *pflag.NotExistError
		invalid *pflag.InvalidValueError
		missing *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return unknownFlag(fs, "-", unknown.GetSpecifiedShortnames())
	case errors.As(err, &unknown):
		return unknownFlag(fs, "--", unknown.GetSpecifiedName())
	case errors.As(err, &invalid):
		return invalidValue(invalid.GetFlag(), invalid.GetValue(), invalid.Unwrap())
	case errors.As(err, &missing):
		return fmt.Errorf("--%s has no value: give one, as in --%s=VALUE", missing.GetFlag().Name, missing.GetFlag().Name)
	}
	return fmt.Errorf("%w: %s", err, seeHelp)
}

// unknownFlag names the flag with its dashes, and a similar one. pflag reads one dash as that of flags with one letter.
func unknownFlag(fs *pflag.FlagSet, dashes, name string) error {
	name, _, _ = strings.Cut(name, "=")
	var names []string
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := strictyaml.Nearest(HyphenateFlag(name), names); near != "" && len(name) > 1 {
		return fmt.Errorf("unknown flag: %s%s: did you mean --%s?", dashes, name, near)
	}
	return fmt.Errorf("unknown flag: %s%s: %s", dashes, name, seeHelp)
}

// kinds are the values of flags by pflag's names of their types, for messages.
var kinds = map[string]string{
	"int": "a whole number", "uint64": "a whole number of 0 or more", "float64": "a number", "bool": "true or false",
	"duration": "a duration such as 200ms or 1m30s",
}

// invalidValue names a flag, its value and what it should be. Flags with a type of their own say that in their cause.
func invalidValue(f *pflag.Flag, value string, cause error) error {
	if kind, known := kinds[f.Value.Type()]; known {
		return fmt.Errorf("--%s %.100q is not %s", f.Name, value, kind)
	}
	return fmt.Errorf("--%s: %w", f.Name, cause)
}

// HyphenateFlag converts the name of a flag such as poolName to pool-name.
func HyphenateFlag(camel string) string {
	var b strings.Builder
	for _, r := range camel {
		if unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
