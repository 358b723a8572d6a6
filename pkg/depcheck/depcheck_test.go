package depcheck

import (
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
