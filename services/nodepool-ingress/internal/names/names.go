// Package names derives the names of the objects of a pool from the name of the pool, which other clients choose: the name of a NodePool is
// a DNS subdomain, with dots and up to 253 characters, and a label value may have upper case and underscores.
//
// A name is <role>-<pool>. The role has no dash, so the names of two roles never collide. The pool is unchanged if it is a DNS label that
// fits. Otherwise it is shortened to the characters of a label, and a hash of the full name follows. A pool whose name ends like a hash
// gets a hash, too: an unchanged name and a shortened name never collide.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

const (
	// maxLabel is the maximum length of a DNS label, and therefore of the name of a Service, which is a DNS-1035 label.
	maxLabel = 63
	// hashLength is the number of hexadecimal digits. To find a second name with the hash of a given one takes 2^48 attempts.
	hashLength = 12

	roleIngress = "ingress"
	roleCache   = "cache"
)

var (
	label    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	hashed   = regexp.MustCompile(`(^|-)[0-9a-f]{12}$`)
	notLabel = regexp.MustCompile(`[^a-z0-9]+`)
)

// PoolObject returns the name of the objects of a pool in its namespace: Deployment, ServiceAccount, ConfigMap, Service,
// PodDisruptionBudget, bindings, and the lock of the controller's leader election.
func PoolObject(pool string) string {
	return roleIngress + "-" + shortenName(pool, maxLabel-len(roleIngress)-1)
}

// CacheConfigMap returns the name of the ConfigMap that points the controller of a pool to its cache.
func CacheConfigMap(pool string) string {
	return roleCache + "-" + shortenName(pool, maxLabel-len(roleCache)-1)
}

// ClusterObject returns the name of a cluster-scoped object of a pool, unique among namespaces. Such names may contain colons, and be
// longer.
func ClusterObject(namespace, pool string) string { return namespace + ":" + PoolObject(pool) }

// shortenName returns the pool if it is a DNS label of at most limit characters that does not end like a hash. Otherwise it returns a label
// with a hash.
func shortenName(pool string, limit int) string {
	if len(pool) <= limit && label.MatchString(pool) && !hashed.MatchString(pool) {
		return pool
	}
	sum := sha256.Sum256([]byte(pool))
	hash := hex.EncodeToString(sum[:])[:hashLength]
	text := strings.Trim(notLabel.ReplaceAllString(strings.ToLower(pool), "-"), "-")
	if rest := limit - hashLength - 1; len(text) > rest {
		text = strings.TrimRight(text[:rest], "-")
	}
	if text == "" {
		return hash
	}
	return text + "-" + hash
}
