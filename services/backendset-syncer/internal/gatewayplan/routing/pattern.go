package routing

import (
	"errors"
	"regexp/syntax"
)

// Operators of the condition language.
const (
	equals     = "eq"
	startsWith = "sw"
	endsWith   = "ew"
)

var errPattern = errors.New("OCI has no regular expressions: only ^text$, ^text.* and .*text$ are possible")

// parsePattern returns the operator and the text of a regular expression that is a literal text with an anchor. It accepts only
// expressions that mean the same to implementations that match the whole value, and to those that search in it:
//
//	^text$                      eq text
//	^text.*, ^text.*$           sw text
//	.*text$, ^.*text$           ew text
func parsePattern(pattern string) (operator, text string, _ error) {
	if len(pattern) > maxLiteral {
		return "", "", errPattern
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", "", errPattern
	}
	shape := ""
	for _, part := range flattenConcat(re) {
		shape += shapeSymbol(part)
		if part.Op == syntax.OpLiteral {
			text = string(part.Rune)
		}
	}
	if operator = operators[shape]; operator == "" {
		return "", "", errPattern
	}
	return operator, text, nil
}

// operators are the operators for the shapes of expressions. A shape has a symbol for each part.
var operators = map[string]string{"^t$": equals, "^t*": startsWith, "^t*$": startsWith, "*t$": endsWith, "^*t$": endsWith}

// shapeSymbol returns ^ and $ for anchors, * for .*, t for a literal text, and a question mark for anything else.
func shapeSymbol(re *syntax.Regexp) string {
	switch {
	case re.Op == syntax.OpBeginText:
		return "^"
	case re.Op == syntax.OpEndText:
		return "$"
	case re.Op == syntax.OpStar && isAnything(re.Sub[0]):
		return "*"
	case re.Op == syntax.OpLiteral && re.Flags&syntax.FoldCase == 0:
		return "t"
	}
	return "?"
}

func isAnything(re *syntax.Regexp) bool {
	return re.Op == syntax.OpAnyCharNotNL || re.Op == syntax.OpAnyChar
}

// flattenConcat returns the parts of a concatenation. A group around a part, which captures it, does not matter.
func flattenConcat(re *syntax.Regexp) []*syntax.Regexp {
	switch re.Op {
	case syntax.OpConcat:
		var parts []*syntax.Regexp
		for _, sub := range re.Sub {
			parts = append(parts, flattenConcat(sub)...)
		}
		return mergeLiterals(parts)
	case syntax.OpCapture:
		return flattenConcat(re.Sub[0])
	}
	return []*syntax.Regexp{re}
}

// mergeLiterals joins literals that follow each other.
func mergeLiterals(parts []*syntax.Regexp) []*syntax.Regexp {
	var merged []*syntax.Regexp
	for _, p := range parts {
		if n := len(merged); n > 0 && p.Op == syntax.OpLiteral && merged[n-1].Op == syntax.OpLiteral && p.Flags == merged[n-1].Flags {
			joined := *p
			joined.Rune = append(append([]rune{}, merged[n-1].Rune...), p.Rune...)
			merged[n-1] = &joined
			continue
		}
		merged = append(merged, p)
	}
	return merged
}
