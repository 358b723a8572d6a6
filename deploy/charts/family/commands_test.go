package family_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
)

const registry = "oci://$REGISTRY/charts/"

// installCommand matches the installation of a chart in a document, with the lines that continue it.
var installCommand = regexp.MustCompile(`helm install \S+ (\S+)(?:[^\n]*\\\n)*[^\n]*`)

// TestInstallCommandsInDocuments checks that the documents install charts in one form, and renders the charts with the values of the commands:
// the schema refuses a value that does not exist.
func TestInstallCommandsInDocuments(t *testing.T) {
	t.Parallel()
	rendered := map[string]bool{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "charts/*/README.md", "services/*/README.md", "deploy/*/README.md"} {
		files, err := filepath.Glob(filepath.Join(helm.Repository(), pattern))
		require.NoError(t, err)
		for _, file := range files {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range installCommand.FindAllStringSubmatch(string(raw), -1) {
				if chart := checkForm(t, file, match[0], match[1]); chart != "" {
					renderCommand(t, match[0])
					rendered[chart] = true
				}
			}
		}
	}
	assert.Len(t, rendered, 6, "each chart has a command: %v", rendered)
}

// checkForm checks the form of a command, and returns the chart of this repository that it installs with values that are known here.
func checkForm(t *testing.T, file, command, reference string) string {
	t.Helper()
	chart, ours := strings.CutPrefix(reference, registry)
	if !ours {
		assert.Regexp(t, `^(oci://docker\.io/|deploy/examples/)`, reference, "%s: install a chart of this repository from %s", file, registry)
		return ""
	}
	for _, part := range []string{" --version ${VERSION#v}", "--set image.registry=$REGISTRY", "--set image.repository=" + chart} {
		assert.Contains(t, command, part, "%s: %s", file, command)
	}
	_, err := os.Stat(filepath.Join(helm.Repository(), "charts", chart))
	if os.IsNotExist(err) || strings.Contains(command, "--values") { // a placeholder, or a file of another folder
		return ""
	}
	return chart
}

// renderCommand renders the chart of an installation. Charts of the registry are those of the repository.
func renderCommand(t *testing.T, command string) {
	t.Helper()
	const script = `helm() { shift; "${HELM_COMMAND[@]}" template "${@/#oci:\/\/$REGISTRY\//}"; }`
	program := "HELM_COMMAND=('" + strings.Join(helm.Command(), "' '") + "')\nset -u\n" + script + "\n" + command
	cmd := exec.CommandContext(t.Context(), "bash", "-c", program)
	cmd.Dir = helm.Repository()
	cmd.Env = append(os.Environ(), "REGISTRY=registry.example.com/fairlead", "VERSION=v0.1.0", "server=192.0.2.1:6443")
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s\n%s", command, out)
}
