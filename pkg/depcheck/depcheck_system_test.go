//go:build system

package depcheck

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
