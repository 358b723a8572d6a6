package family_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/alerts"
	"fairlead.dev/deploy/charts/internal/helm"
)

// TestAlertsAreNamedAlike checks that the name of each alert is that of its service and a condition, and that all services have the same words
// for conditions that several of them have.
func TestAlertsAreNamedAlike(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(helm.Repository(), "charts", "*", "Chart.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		folder := filepath.Dir(file)
		prefix := strings.ReplaceAll(filepath.Base(folder), "-", "")
		for _, rule := range alerts.Read(t, folder) {
			require.Greater(t, len(rule.Alert), len(prefix), rule.Alert)
			condition := rule.Alert[len(prefix):]
			assert.Equal(t, prefix, strings.ToLower(rule.Alert[:len(prefix)]), rule.Alert)
			assert.Regexp(t, "^[A-Z]", condition, rule.Alert)
			assert.NotRegexp(t, "WithoutLeader|Fails?$", condition, "%s: the words are NoLeader and Failing", rule.Alert)
			if strings.Contains(rule.Expr, "(fairlead_leader) == 0") {
				assert.Equal(t, "NoLeader", condition, rule.Alert)
			}
		}
	}
}
