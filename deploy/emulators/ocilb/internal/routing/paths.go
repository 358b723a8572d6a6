package routing

import "strings"

// Match types of path route sets and of redirects.
const (
	ExactMatch              = "EXACT_MATCH"
	ForceLongestPrefixMatch = "FORCE_LONGEST_PREFIX_MATCH"
	PrefixMatch             = "PREFIX_MATCH"
	SuffixMatch             = "SUFFIX_MATCH"
)

// IsMatchType reports whether a text is a match type.
func IsMatchType(text string) bool {
	switch text {
	case ExactMatch, ForceLongestPrefixMatch, PrefixMatch, SuffixMatch:
		return true
	}
	return false
}

// Path is a path to compare.
type Path struct {
	Type string // one of the match types
	Text string
}

// Ranks of matches: the lower one wins.
const (
	rankExact = iota
	rankLongest
	rankFirst
	rankNone
)

// BestPath returns the index of the path that matches that of a request best, or -1. An exact match wins, then the longest of the
// paths that force the longest prefix, and then the first prefix or suffix. Case does not matter.
func BestPath(paths []Path, request string) int {
	request = strings.ToLower(request)
	best, bestRank := -1, rankNone
	for i, p := range paths {
		switch r := p.rank(request); {
		case r < bestRank, r == rankLongest && bestRank == rankLongest && len(p.Text) > len(paths[best].Text):
			best, bestRank = i, r
		}
	}
	return best
}

// rank compares the path with that of a request in lower case.
func (p *Path) rank(request string) int {
	text := strings.ToLower(p.Text)
	switch {
	case p.Type == ExactMatch && request == text:
		return rankExact
	case p.Type == ForceLongestPrefixMatch && strings.HasPrefix(request, text):
		return rankLongest
	case p.Type == PrefixMatch && strings.HasPrefix(request, text), p.Type == SuffixMatch && strings.HasSuffix(request, text):
		return rankFirst
	}
	return rankNone
}
