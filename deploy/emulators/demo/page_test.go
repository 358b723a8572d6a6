//go:build system

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/pkg/kubetest"
)

var screenshot = flag.String("screenshot", "", "PNG file of the status page to write")

// repository is the path of the repository from this package.
const repository = "../../.."

// TestStatusPage opens the picker's status page in Chromium after the requests of a demo, and compares it with their report.
func TestStatusPage(t *testing.T) {
	t.Parallel()
	b, envoy := findBrowser(t), findEnvoy(t)
	o := options{
		bin: buildPrograms(t), envoy: envoy, bootstrap: filepath.Join(repository, "deploy", "examples", "inference", "envoy.yaml"),
		servers: 3, requests: 60, concurrency: 12, tokens: 16, startTimeout: kubetest.Patience,
	}
	s, err := startStack(t.Context(), o, t.TempDir())
	t.Cleanup(s.stop)
	require.NoError(t, err)
	report, err := chatload.Run(t.Context(), o.load("http://"+s.gateway))
	require.NoError(t, err)
	require.Zero(t, report.Failed(), s.logs())
	awaitPicks(t, s, o.requests)

	page := b.open(t, "http://"+s.metrics+"/debug/pools.html")
	assert.Contains(t, page.headings(), "servers")
	assert.Equal(t, []string{"3 / 3 endpoints in use", "60 picks"}, keep(page.texts("tile"), "endpoints in use", " picks"))
	assertEndpoints(t, page.rows("endpoints"), report)
	assertPicks(t, page.rows("picks"))
	assert.Len(t, page.rows("speed"), 5)
	if *screenshot != "" {
		writeScreenshot(t, b, s, o)
	}
}

// assertEndpoints compares the rows of the endpoints with the requests that their servers answered.
func assertEndpoints(t *testing.T, rows [][]string, report *chatload.Report) {
	t.Helper()
	require.Len(t, rows, 3)
	for i, row := range rows {
		require.Len(t, row, 15)
		assert.Equal(t, "default/"+serverName(i), row[0])
		assert.Contains(t, row[1], localhost+":")
		assert.Equal(t, "ready", row[2])
		assert.Regexp(t, `^\d+\.\d %$`, row[6], "KV cache")
		assert.Regexp(t, `^[\d.]+ % / [\d.]+ %$`, row[10], "cached tokens")
		assert.Equal(t, strconv.Itoa(report.Server(serverName(i)).Requests), row[11], "picks of %s", row[0])
		assert.Equal(t, "0", row[13], "failed scrapes")
	}
}

func assertPicks(t *testing.T, rows [][]string) {
	t.Helper()
	require.Len(t, rows, shownPicks)
	for _, row := range rows {
		assert.Equal(t, model, row[2])
		assert.Contains(t, row[3], "default/model-")
		assert.Equal(t, "completed 200", row[4])
		assert.Regexp(t, `^[\d.]+ (ms|s)$`, row[8], "time to the first token")
		assert.Regexp(t, `^3 Pod Address Score`, row[10], "candidates")
	}
}

// writeScreenshot takes a picture of the page while requests run.
func writeScreenshot(t *testing.T, b browser, s *stack, o options) {
	t.Helper()
	load := o.load("http://" + s.gateway)
	load.Requests, load.Concurrency, load.MaxTokens = 0, 48, 160
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := chatload.Run(ctx, load)
		done <- err
	}()
	awaitPicks(t, s, 8*o.requests)
	b.run(t, "--window-size=1380,860", "--screenshot="+*screenshot, "http://"+s.metrics+"/debug/pools.html")
	cancel()
	require.NoError(t, <-done)
	written, err := os.Stat(*screenshot)
	require.NoError(t, err)
	t.Logf("%s: %d bytes", *screenshot, written.Size())
}

// browser is the path of Chromium.
type browser string

func findBrowser(t *testing.T) browser {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return browser(path)
		}
	}
	t.Skip("no Chromium on PATH: run apt-get install chromium")
	return ""
}

// run starts a headless browser and returns its output.
func (b browser) run(t *testing.T, args ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	// Without a sandbox, because root cannot use one. The browser opens only the picker's page.
	cmd := exec.CommandContext(t.Context(), string(b), append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--user-data-dir=" + t.TempDir(),
	}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), stderr.String())
	return stdout.Bytes()
}

// open returns the page of a URL after the browser has parsed it.
func (b browser) open(t *testing.T, url string) page {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(b.run(t, "--dump-dom", url)))
	require.NoError(t, err)
	return page{root}
}

// page is the DOM of a page.
type page struct{ root *html.Node }

// headings returns the texts of the headings of the first level.
func (p page) headings() []string {
	var found []string
	for n := range p.root.Descendants() {
		if n.DataAtom == atom.H1 {
			found = append(found, text(n))
		}
	}
	return found
}

// texts returns the texts of the elements with a class.
func (p page) texts(class string) []string {
	var found []string
	for n := range p.root.Descendants() {
		if attribute(n, "class") == class {
			found = append(found, text(n))
		}
	}
	return found
}

// rows returns the texts of the cells in the body of a table, without tables in cells.
func (p page) rows(table string) [][]string {
	var rows [][]string
	for n := range p.root.Descendants() {
		if n.DataAtom != atom.Table || attribute(n, "id") != table {
			continue
		}
		for body := range n.ChildNodes() {
			if body.DataAtom != atom.Tbody {
				continue
			}
			for row := range body.ChildNodes() {
				if row.DataAtom == atom.Tr {
					rows = append(rows, cells(row))
				}
			}
		}
	}
	return rows
}

func cells(row *html.Node) []string {
	var found []string
	for n := range row.ChildNodes() {
		if n.DataAtom == atom.Td {
			found = append(found, text(n))
		}
	}
	return found
}

// text returns the words of a node, separated by spaces.
func text(n *html.Node) string {
	var words []string
	for child := range n.Descendants() {
		if child.Type == html.TextNode {
			words = append(words, strings.Fields(child.Data)...)
		}
	}
	return strings.Join(words, " ")
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// keep returns the texts with one of the given endings.
func keep(texts []string, endings ...string) []string {
	var kept []string
	for _, text := range texts {
		for _, ending := range endings {
			if strings.HasSuffix(text, ending) {
				kept = append(kept, text)
			}
		}
	}
	return kept
}

func findEnvoy(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(repository, "bin", "cache", "envoy-*"))
	require.NoError(t, err)
	if len(found) == 0 {
		t.Skip("no bin/cache/envoy-*: run make demo or make screenshot to download Envoy")
	}
	return found[len(found)-1]
}

// buildPrograms compiles the picker and the model server, and returns their folder.
func buildPrograms(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	for module, program := range map[string]string{"services/endpoint-picker": ".", "deploy/emulators": "./modelserver"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", program)
		cmd.Dir = filepath.Join(repository, filepath.FromSlash(module))
		cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0") // as in make demo, to use the same build cache
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", module, out)
	}
	return bin
}

// awaitPicks waits until the picker has made a number of picks.
func awaitPicks(t *testing.T, s *stack, want int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		text, err := get(t.Context(), "http://"+s.metrics+"/debug/pools.json")
		require.NoError(c, err)
		var state struct {
			Pools []struct {
				Endpoints []struct{ Picks int }
			}
		}
		require.NoError(c, json.Unmarshal(text, &state))
		require.Len(c, state.Pools, 1)
		picks := 0
		for _, e := range state.Pools[0].Endpoints {
			picks += e.Picks
		}
		assert.GreaterOrEqual(c, picks, want)
	}, kubetest.Patience, pollInterval)
}
