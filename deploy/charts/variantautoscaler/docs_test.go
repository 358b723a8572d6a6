package variantautoscaler_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/exported"
)

func readReasons(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repository, "docs", "operations", program+"-reasons.md"))
	require.NoError(t, err)
	return string(raw)
}

// TestEveryReasonHasALine compares the reasons of desired replicas, of problems and of notes in the source of the program, and those of
// conditions and Events, with the tables of the page of reasons.
func TestEveryReasonHasALine(t *testing.T) {
	t.Parallel()
	want := map[string]bool{}
	for _, reason := range exported.Read(t, program).Reasons {
		want[reason] = true
	}
	decided := regexp.MustCompile(`(?m)^\t\w+ +Reason += "(\w+)"`).FindAllStringSubmatch(readSource(t, "decision", "record.go"), -1)
	problems := regexp.MustCompile(`(?m)^\t\w+ = "(\w+)"`).FindAllStringSubmatch(readSource(t, "snapshot", "problems.go"), -1)
	require.NotEmpty(t, decided)
	require.NotEmpty(t, problems)
	for _, match := range append(decided, problems...) {
		want[match[1]] = true
	}
	for _, reason := range []string{"SkippedProcessing", "SaturationSafetyOverride", "ScaleFromZero"} {
		delete(want, reason) // other programs write them
	}
	explained := map[string]bool{}
	for _, match := range regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)` \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(readReasons(t), -1) {
		explained[match[1]] = true
	}
	assert.Equal(t, want, explained, "each reason has a line in a table of docs/operations/variant-autoscaler-reasons.md")
}
