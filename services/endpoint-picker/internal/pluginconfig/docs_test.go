package pluginconfig

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/internal/scheduling/plugins"
)

// TestDocumentedPlugins compares the table of plugins in the page for users with the registry. The page does not mention
// deprecated types.
func TestDocumentedPlugins(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/services/endpoint-picker-configuration.md")
	require.NoError(t, err)
	want := map[string][]string{}
	for _, kind := range plugins.Types() {
		if row := documentedRow(kind); kind.ReplacedBy == "" {
			want[row] = append(want[row], kind.Name)
		}
	}
	for row, names := range want {
		line := regexp.MustCompile(`(?m)^\| ` + row + ` \| (.*) \|$`).FindStringSubmatch(string(page))
		require.NotNil(t, line, row)
		documented := strings.Split(strings.ReplaceAll(strings.TrimSuffix(line[1], ", and the detectors below"), "`", ""), ", ")
		assert.ElementsMatch(t, names, documented, row)
	}
}

func documentedRow(kind plugins.Type) string {
	switch kind.Section {
	case plugins.SectionSaturation:
		return "saturation"
	case plugins.SectionParsers:
		return "parsers"
	case plugins.SectionProfile:
	default:
		if strings.HasSuffix(kind.Name, "-handler") {
			return "profile handlers"
		}
		return "data"
	}
	switch kind.New(plugins.Environment{}).(type) {
	case scheduling.Scorer:
		return "scorers"
	case scheduling.Filter:
		return "filters"
	default:
		return "pickers"
	}
}
