package faults

import (
	"fmt"
	"strconv"
	"strings"
)

// Header is the request header that names faults for one request.
const Header = "x-fault"

// WithHeader adds the faults in a request's header to the verdict: a comma-separated list of slow=FACTOR, CODE or
// status=CODE, hang, and drop or drop=TOKENS.
func (v Verdict) WithHeader(value string) (Verdict, error) {
	for item := range strings.SplitSeq(value, ",") {
		name, arg, hasArg := strings.Cut(strings.TrimSpace(item), "=")
		if _, err := strconv.Atoi(name); err == nil && !hasArg {
			name, arg = "status", name
		}
		if err := v.apply(name, arg); err != nil {
			return Verdict{}, fmt.Errorf("parse %s %q: %w", Header, value, err)
		}
	}
	return v, nil
}

func (v *Verdict) apply(name, arg string) error {
	switch name {
	case "":
	case "hang":
		v.Hang = true
	case "slow":
		factor, err := strconv.ParseFloat(arg, 64)
		if err != nil || factor < 1 {
			return fmt.Errorf("slow needs a factor of at least 1, got %q", arg)
		}
		v.Stretch = factor
	case "status":
		code, err := strconv.Atoi(arg)
		if err != nil {
			return fmt.Errorf("status needs a number, got %q", arg)
		}
		v.Status = code
		return checkStatus(code)
	case "drop":
		v.Drop, v.DropAfter = true, 0
		if arg == "" {
			return nil
		}
		n, err := strconv.Atoi(arg)
		if err != nil || n < 0 {
			return fmt.Errorf("drop needs a number of tokens, got %q", arg)
		}
		v.DropAfter = n
	default:
		return fmt.Errorf("unknown fault %q: give slow, status, hang or drop", name)
	}
	return nil
}
