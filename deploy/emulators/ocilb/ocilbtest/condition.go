package ocilbtest

import (
	"net/http"

	"fairlead.dev/deploy/emulators/ocilb/internal/routing"
)

// Limits of the condition language: conditions in a group, and in a policy.
const (
	MaxTerms      = routing.MaxTerms
	MaxConditions = routing.MaxConditions
)

// ParseCondition parses a condition of a routing policy as the emulator does. It returns whether a request meets it, and the number of
// its comparisons.
func ParseCondition(text string) (match func(*http.Request) bool, comparisons int, err error) {
	c, err := routing.Parse(text)
	if err != nil {
		return nil, 0, err
	}
	return c.Match, c.Comparisons(), nil
}
