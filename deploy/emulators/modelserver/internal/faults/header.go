package faults

import (
	"fmt"
	"strconv"
	"strings"
)

// Header is the request header that names the faults of one request.
const Header = "x-fault"

// WithHeader adds the faults in a request's header to the verdict: slow=FACTOR, a Fault, or both, separated by a comma. The rate of a Fault
// in a header has no effect.
func (v Verdict) WithHeader(value string) (Verdict, error) {
	rest := strings.ReplaceAll(value, " ", "")
	if item, others, _ := strings.Cut(rest, ","); strings.HasPrefix(item, "slow=") {
		factor, err := strconv.ParseFloat(strings.TrimPrefix(item, "slow="), 64)
		if err != nil || factor < 1 {
			return Verdict{}, fmt.Errorf("parse %s %q: slow needs a factor of at least 1", Header, value)
		}
		v.Stretch, rest = factor, others
	}
	if rest == "" {
		return v, nil
	}
	fault, err := ParseFault(rest)
	if err != nil {
		return Verdict{}, fmt.Errorf("parse %s %q: %w", Header, value, err)
	}
	v.Fault = fault
	return v, nil
}
