package names

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 253)
	tests := []struct {
		name, pool, ingress string
	}{
		{name: "label", pool: "hangzhou", ingress: "ingress-hangzhou"},
		{name: "leading digit", pool: "1st", ingress: "ingress-1st"},
		{name: "dots", pool: "eu.hangzhou", ingress: "ingress-eu-hangzhou-" + hashOf("eu.hangzhou")},
		{name: "upper case", pool: "Hangzhou_1", ingress: "ingress-hangzhou-1-" + hashOf("Hangzhou_1")},
		{name: "longest that fits", pool: long[:55], ingress: "ingress-" + long[:55]},
		{name: "one more", pool: long[:56], ingress: "ingress-" + long[:42] + "-" + hashOf(long[:56])},
		{name: "longest", pool: long, ingress: "ingress-" + long[:42] + "-" + hashOf(long)},
		{name: "cut at a dash", pool: long[:41] + "." + long, ingress: "ingress-" + long[:41] + "-" + hashOf(long[:41]+"."+long)},
		{name: "like a hash", pool: "0123456789ab", ingress: "ingress-0123456789ab-" + hashOf("0123456789ab")},
		{name: "no character of a label", pool: "日本", ingress: "ingress-" + hashOf("日本")},
		{name: "empty", pool: "", ingress: "ingress-" + hashOf("")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.ingress, PoolObject(tt.pool))
		})
	}
}

func hashOf(pool string) string {
	sum := sha256.Sum256([]byte(pool))
	return hex.EncodeToString(sum[:6])
}

// TestNamesNeverMeet builds names that could be mistaken for those of other pools.
func TestNamesNeverMeet(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("pool-", 50)
	pools := []string{
		"a.b", "a-b", "A-b", "a_b", "a--b", "a..b", ".a.b", "", "-", "cache", "ingress", "ingress-a", "cache-a", long + "a", long + "b",
		long[:200],
	}
	seen := map[string]string{}
	for round := range 3 { // names of names of names
		for _, pool := range pools {
			for role, name := range map[string]string{"ingress": PoolObject(pool), "cache": CacheConfigMap(pool)} {
				owner := role + "/" + pool
				other, taken := seen[name]
				require.Truef(t, !taken || other == owner, "%s and %s are both %s", other, owner, name)
				seen[name] = owner
			}
		}
		for i := range pools {
			_, after, _ := strings.Cut(PoolObject(pools[i]), "-")
			if after != pools[i] {
				pools = append(pools, after)
			}
		}
		require.Less(t, len(pools), 200, "round %d", round)
	}
}

func FuzzNames(f *testing.F) {
	for _, seed := range []string{"hangzhou", "a.b", "", strings.Repeat("-", 300), "0123456789ab", "ß"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pool string) {
		for _, name := range []string{PoolObject(pool), CacheConfigMap(pool)} {
			assert.Emptyf(t, validation.IsDNS1035Label(name), "%q", pool)
		}
	})
}

func TestCluster(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "fairlead:ingress-hangzhou", ClusterObject("fairlead", "hangzhou"))
	assert.NotEqual(t, ClusterObject("a", "b"), ClusterObject("a:ingress-b", ""))
}
