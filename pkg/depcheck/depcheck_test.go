package depcheck

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFindChains(t *testing.T) {
	t.Parallel()
	packages := []listedPackage{
		{ImportPath: "a", Imports: []string{"b", "c"}},
		{ImportPath: "b", Imports: []string{"sdk/client"}, DepOnly: true},
		{ImportPath: "c", Imports: []string{"b", "d"}, DepOnly: true},
		{ImportPath: "d", Imports: []string{"sdk/client", "log"}, DepOnly: true},
		{ImportPath: "sdk/client", Imports: []string{"sdk/deep"}, DepOnly: true},
	}
	tests := []struct {
		name      string
		forbidden []string
		want      [][]string
	}{
		{name: "nothing forbidden is reached", forbidden: []string{"zap", "sdk", "lo", "log/..x"}},
		{name: "exact path by the shortest chain", forbidden: []string{"sdk/client"}, want: [][]string{{"a", "b", "sdk/client"}}},
		{name: "tree, search stops at its first package", forbidden: []string{"sdk/..."}, want: [][]string{{"a", "b", "sdk/client"}}},
		{name: "tree includes its root", forbidden: []string{"log/..."}, want: [][]string{{"a", "c", "d", "log"}}},
		{name: "several", forbidden: []string{"log", "sdk/deep"}, want: [][]string{{"a", "b", "sdk/client", "sdk/deep"}, {"a", "c", "d", "log"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.ElementsMatch(t, tt.want, findChains(packages, tt.forbidden))
		})
	}
}

func TestAssertNoDependency(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		pattern   string
		forbidden string
		want      []string
	}{
		{name: "no dependency", pattern: ".", forbidden: "k8s.io/..."},
		{
			name: "dependency", pattern: ".", forbidden: "encoding/json",
			want: []string{"forbidden dependency: fairlead.dev/pkg/depcheck imports encoding/json"},
		},
		{name: "no such package", pattern: "./nowhere", want: []string{"list dependencies of ./nowhere: exit status 1: "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			recorded := &recordedTB{TB: t}
			AssertNoDependency(recorded, tt.pattern, tt.forbidden)
			assert.Len(t, recorded.lines, len(tt.want))
			for i := range tt.want {
				assert.Contains(t, recorded.lines[i], tt.want[i])
			}
		})
	}
}

func TestPkgKnowsNoServiceAndNoHeavySDK(t *testing.T) {
	t.Parallel()
	AssertNoDependency(t, "fairlead.dev/pkg/...",
		"fairlead.dev/services/...", "fairlead.dev/deploy/...", "k8s.io/kubernetes/...", "sigs.k8s.io/controller-runtime/...")
}

// recordedTB records error messages.
type recordedTB struct {
	testing.TB
	lines []string
}

func (r *recordedTB) Errorf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// Fatalf does not end the goroutine, so the caller continues with nil packages.
func (r *recordedTB) Fatalf(format string, args ...any) { r.Errorf(format, args...) }
