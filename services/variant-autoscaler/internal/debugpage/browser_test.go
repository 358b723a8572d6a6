//go:build system

package debugpage

import (
	"bytes"
	"flag"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var screenshot = flag.String("screenshot", "", "PNG file of the page to write")

// TestInBrowser opens the page of six hours of decisions in Chromium: its policy admits the styles and drawings that it needs.
func TestInBrowser(t *testing.T) {
	t.Parallel()
	browser := findBrowser(t)
	p := newPage(noon)
	fleet(t, p)
	mux := http.NewServeMux()
	for pattern, h := range p.Handlers() {
		mux.Handle(pattern, h)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	dom := string(browser.run(t, "--dump-dom", server.URL+"/debug/models"))
	assert.Equal(t, []string{"models/qwen3-32b ", "models/llama-3.1-8b ", "models/embedding-large "}, firsts(`<h2>([^<]*)<`, dom), "by demand")
	assert.Equal(t, 12, strings.Count(dom, "<svg "))
	assert.Equal(t, []string{"qwen3-32b-l40s", "qwen3-32b-h100", "llama-3.1-8b-spot", "llama-3.1-8b-l4", "embedding-large-l4"}, firsts(`<tr><td>([a-z0-9.-]*) <small>`, dom))
	assert.Contains(t, dom, "The charts show the last 6 h 0 min.")
	for _, path := range firsts(`<path class="a" d="([^"]*)"`, dom)[:3] {
		assert.Greater(t, strings.Count(path, "L"), 300, "as many points as passes")
	}

	file := *screenshot
	if file == "" {
		file = filepath.Join(t.TempDir(), "models.png")
	}
	browser.run(t, "--window-size=1380,1130", "--screenshot="+file, server.URL+"/debug/models.html")
	drawn := colors(t, file)
	for name, c := range map[string]color.RGBA{"page": {0xf5, 0xf7, 0xf9, 0xff}, "first line": {0x00, 0x79, 0x6b, 0xff}, "second line": {0xb2, 0x6a, 0x00, 0xff}, "problem": {0xb3, 0x26, 0x1e, 0xff}} {
		assert.Greater(t, drawn[c], 100, "%s: pixels of its color", name)
	}
}

// chromium is the path of a browser.
type chromium string

func findBrowser(t *testing.T) chromium {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return chromium(path)
		}
	}
	t.Skip("no Chromium on PATH: run apt-get install chromium")
	return ""
}

// run starts a headless browser and returns its output.
func (b chromium) run(t *testing.T, args ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	// Without a sandbox, because root cannot use one. The browser opens only the page of this test.
	cmd := exec.CommandContext(t.Context(), string(b), append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(),
	}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), stderr.String())
	return stdout.Bytes()
}

// firsts returns the first group of each match.
func firsts(expression, text string) []string {
	var found []string
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// colors counts the pixels of a picture by color.
func colors(t *testing.T, file string) map[color.RGBA]int {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	t.Logf("%s: %d bytes", file, len(text))
	picture, err := png.Decode(bytes.NewReader(text))
	require.NoError(t, err)
	found := map[color.RGBA]int{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			found[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
		}
	}
	return found
}
