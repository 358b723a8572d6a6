package tokens

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Lengths is the distribution of the lengths of answers that end with stop: any number of tokens from Min to Max, equally likely.
// The zero value means that only a limit ends answers.
type Lengths struct {
	Min, Max int
}

// ParseLengths parses "N", "MIN-MAX", or "" for the zero value.
func ParseLengths(s string) (Lengths, error) {
	if s == "" {
		return Lengths{}, nil
	}
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	smallest, err := strconv.Atoi(low)
	if err != nil {
		return Lengths{}, fmt.Errorf("parse length %q: %w", s, err)
	}
	largest, err := strconv.Atoi(high)
	if err != nil {
		return Lengths{}, fmt.Errorf("parse length %q: %w", s, err)
	}
	if smallest < 1 || largest < smallest {
		return Lengths{}, fmt.Errorf("length %q is not N or MIN-MAX with 1 <= MIN <= MAX", s)
	}
	return Lengths{Min: smallest, Max: largest}, nil
}

// String returns the text that ParseLengths parses.
func (l Lengths) String() string {
	switch {
	case l == Lengths{}:
		return ""
	case l.Min == l.Max:
		return strconv.Itoa(l.Min)
	default:
		return fmt.Sprintf("%d-%d", l.Min, l.Max)
	}
}

// Draw returns the length of the answer with this seed.
func (l Lengths) Draw(seed uint64) int {
	return l.Min + rand.New(rand.NewPCG(seed, 5)).IntN(l.Max-l.Min+1)
}
