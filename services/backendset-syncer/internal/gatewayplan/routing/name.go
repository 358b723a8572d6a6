package routing

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxName is OCI's limit for names of backend sets, policies and rules.
	maxName = 32
	// hashLength is the length of the hash in a name, in characters of 5 bits. Names of different objects must differ even if a tenant
	// chooses namespaces and names to make them equal: with 10 characters this takes 2^50 hashes.
	hashLength = 10
)

// EmptySet is the name of the backend set without backends.
const EmptySet = "fairlead-no-backends"

// defaultSet is the name of the backend set for requests that no rule matches.
const defaultSet = "fairlead-not-found"

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// nameFor returns a name that follows from a key: as much of a readable text as fits, a separator and a hash. The separator replaces
// characters other than letters and digits.
func nameFor(key, readable string, separator byte) string {
	sum := sha256.Sum256([]byte(key))
	prefix := truncateText(replaceSpecial(readable, separator), maxName-hashLength-1)
	return prefix + string(separator) + encoding.EncodeToString(sum[:])[:hashLength]
}

// NameFor returns the name of an object that is not a policy or a rule, by its key.
func NameFor(key, readable string) string { return nameFor(key, readable, '-') }

// replaceSpecial replaces all characters other than ASCII letters and digits.
func replaceSpecial(text string, by byte) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return rune(by)
	}, text)
}

// truncateText returns the first n bytes of a text, without a character that does not fit.
func truncateText(text string, n int) string {
	return strings.ToValidUTF8(text[:min(n, len(text))], "")
}

// PolicyKey returns the key of the policy of a listener.
func PolicyKey(gateway types.NamespacedName, listener string) string {
	return "policy " + gateway.String() + "/" + listener
}

// PolicyName returns the name of the policy of a listener. Names of policies begin with a letter or an underscore.
func PolicyName(gateway types.NamespacedName, listener string) string {
	return nameFor(PolicyKey(gateway, listener), "p_"+gateway.Name+"_"+listener, '_')
}

// ruleName returns the name of the rule at an index of a policy. A write of a policy replaces all rules, so the names need not be stable.
func ruleName(index int, route types.NamespacedName) string {
	return truncateText(fmt.Sprintf("r%03d_%s", index, replaceSpecial(route.Namespace+"_"+route.Name, '_')), maxName)
}
