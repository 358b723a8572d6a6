//go:build system

package hermetic

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
)

// examples is the folder of the example configurations.
const examples = "../../../../deploy/examples/decision-api"

// A balancer is a load balancer that asks the picker over HTTP, as in the examples.
type balancer struct {
	name      string
	install   string // the command that installs the program
	configure func(b *running)
}

var balancers = []balancer{
	{name: "haproxy", install: "apt-get install haproxy", configure: (*running).haproxy},
	{name: "nginx", install: "apt-get install nginx libnginx-mod-http-js", configure: (*running).nginx},
}

// running is a load balancer that runs in front of model servers.
type running struct {
	*rig

	socket  string // where it listens
	folder  string
	command []string
	client  *http.Client
	process *exec.Cmd
	mu      sync.Mutex
	served  map[string]string // the server of each prompt that was answered last
}

// byPrefix keeps prompts on their servers, however slow the machine makes a server look.
const byPrefix = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: prefix-cache-scorer}
`

// eachBalancer runs a test behind every load balancer that is installed.
func eachBalancer(t *testing.T, test func(t *testing.T, b *running)) {
	for _, kind := range balancers {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(kind.name); err != nil {
				t.Skipf("%s is not installed: %s", kind.name, kind.install)
			}
			page := pageOf(0, 0, 0, "")
			w := world{pages: []string{page, page, page}, flags: withDecisions(), config: byPrefix}
			b := &running{rig: start(t, w), served: map[string]string{}}
			b.folder = t.TempDir()
			b.socket = filepath.Join(b.folder, "http")
			for _, s := range b.servers {
				b.answers(s)
			}
			kind.configure(b)
			b.run()
			test(t, b)
		})
	}
}

// answers makes a server answer requests in two pieces. A prompt with "slow" gets one, and then nothing until its client has gone.
func (b *running) answers(s *modelServer) {
	s.serve(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.served[string(body)] = s.address.String()
		b.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", r.Header.Get("X-Request-Id"))
		_ = http.NewResponseController(w).Flush()
		if strings.Contains(string(body), "slow") {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
}

// file copies a file of the examples, with replacements. Each text to replace is there.
func (b *running) file(name string, replace ...string) string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, name))
	require.NoError(b.t, err)
	for i := 0; i < len(replace); i += 2 {
		require.Contains(b.t, string(text), replace[i], name)
	}
	path := filepath.Join(b.folder, name)
	require.NoError(b.t, os.WriteFile(path, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o600))
	return path
}

// pods returns replacements for the addresses of the example.
func (b *running) pods() []string {
	var replace []string
	for i := range b.servers {
		replace = append(replace, fmt.Sprintf("10.0.0.%d:8000", i+1), b.at(i))
	}
	return replace
}

func (b *running) haproxy() {
	script := b.file("fairlead.lua", "patience = 500 ", fmt.Sprintf("patience = %d ", kubetest.Patience.Milliseconds())) // the machine may be busy with other tests
	config := b.file("haproxy.cfg", append(b.pods(), "/etc/haproxy/fairlead.lua", script, "bind :8080", "bind unix@"+b.socket)...)
	b.command = []string{"haproxy", "-db", "-f", config}
}

func (b *running) nginx() {
	b.file("fairlead.js")
	config := b.file("nginx.conf", append(b.pods(), "js_fetch_timeout 500ms", fmt.Sprintf("js_fetch_timeout %ds", int(kubetest.Patience.Seconds())), "/etc/nginx/fairlead/", b.folder+"/", "listen 8080", "listen unix:"+b.socket,
		"load_module modules/", "load_module /usr/lib/nginx/modules/", "worker_processes auto", "worker_processes 1")...)
	require.NoError(b.t, os.Chmod(b.folder, 0o755))
	for _, path := range []string{filepath.Dir(b.folder), b.folder + "/fairlead.js", config} {
		require.NoError(b.t, os.Chmod(path, 0o755))
	}
	b.command = []string{"nginx", "-p", b.folder, "-e", "stderr", "-c", config, "-g", "daemon off; pid " + b.folder + "/pid;"}
}

// run starts the load balancer, and waits until it answers.
func (b *running) run() {
	b.t.Helper()
	output := &strings.Builder{}
	b.process = exec.Command(b.command[0], b.command[1:]...)
	b.process.Env = append(os.Environ(), "PICKER=http://"+b.address("decision-bind-address"))
	b.process.Stdout, b.process.Stderr = output, output
	b.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	require.NoError(b.t, b.process.Start())
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", b.socket)
	}
	b.client = &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: kubetest.Patience}
	b.t.Cleanup(func() {
		b.client.CloseIdleConnections()
		require.NoError(b.t, b.process.Process.Signal(syscall.SIGTERM))
		_ = b.process.Wait()
		if b.t.Failed() {
			b.t.Log(output)
		}
	})
	b.await(func() bool {
		conn, err := dial(b.t.Context(), "", "")
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, "it listens")
}

// send sends a prompt, and returns the server that answered and its answer.
func (b *running) send(prompt string) (server, answer string) {
	b.t.Helper()
	body := fmt.Sprintf(`{"model":"m","stream":true,"prompt":%q}`, prompt)
	response, err := b.client.Post("http://balancer/v1/completions", "application/json", strings.NewReader(body))
	require.NoError(b.t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	require.NoError(b.t, response.Body.Close())
	require.Equal(b.t, http.StatusOK, response.StatusCode, string(text))
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.served[body], string(text)
}

// longPrompt is a prompt of some thousand tokens.
func longPrompt(name string) string {
	return strings.Repeat("the words of "+name+" again and again. ", 300)
}

// rest waits until no pick is open and no request is in flight, and returns the metrics.
func (b *running) rest() metrics {
	b.t.Helper()
	b.await(func() bool {
		page := b.metrics()
		return page.sum(openDecisions) == 0 && page.sum(inFlight) == 0
	}, "no pick is open")
	return b.metrics()
}

func TestBalancers_RequestsReachThePickedServer(t *testing.T) {
	t.Parallel()
	eachBalancer(t, func(t *testing.T, b *running) {
		served := map[string]float64{}
		for _, name := range []string{"a", "b", "c"} {
			first, answer := b.send(longPrompt(name))
			assert.Contains(t, answer, "[DONE]")
			assert.NotContains(t, answer, "data: \n", "the picker identifies the request")
			served[first]++
			for range 4 {
				b.rest() // else a server whose outcomes are reported late may seem to have stopped
				again, _ := b.send(longPrompt(name))
				assert.Equal(t, first, again, "the server has the prompt in its cache")
				served[again]++
			}
		}
		page := b.rest()
		for server, n := range served {
			assert.Equal(t, n, page.sum("fairlead_picker_endpoint_picks_total", "endpoint", server))
		}
		assert.Equal(t, 15.0, page.sum("fairlead_picker_decision_outcomes_total", "event", "completed"))
		assert.Equal(t, 15.0, page.sum("llm_d_epp_request_ttft_seconds"), "the time of the first token is reported")
		assert.Equal(t, 15.0, page.sum("fairlead_picker_responses_total", "code", "200", "served", "picked"))
	})
}

func TestBalancers_ClientThatLeaves(t *testing.T) {
	t.Parallel()
	eachBalancer(t, func(t *testing.T, b *running) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		body := `{"model":"m","stream":true,"prompt":"slow"}`
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://balancer/v1/completions", strings.NewReader(body))
		require.NoError(t, err)
		response, err := b.client.Do(q)
		require.NoError(t, err)
		piece := make([]byte, 64)
		_, err = response.Body.Read(piece)
		require.NoError(t, err, "the first token comes before the answer ends")
		assert.Equal(t, 1.0, b.metrics().sum(openDecisions))
		cancel()
		_ = response.Body.Close()
		page := b.rest()
		assert.Equal(t, 1.0, page.sum("fairlead_picker_decision_outcomes_total", "event", "aborted"))
	})
}

func TestBalancers_DeadServer(t *testing.T) {
	t.Parallel()
	eachBalancer(t, func(t *testing.T, b *running) {
		first, _ := b.send(longPrompt("a"))
		for _, s := range b.servers {
			if s.address.String() == first {
				s.server.Close()
			}
		}
		for range 6 {
			server, answer := b.send(longPrompt("a"))
			assert.NotEqual(t, first, server)
			assert.Contains(t, answer, "[DONE]")
		}
		assert.Equal(t, 7.0, b.rest().sum("fairlead_picker_decision_outcomes_total", "event", "completed"))
	})
}

// TestBalancers_ServerThatHangsUp has a server whose metrics are fine. The picker learns who served instead.
func TestBalancers_ServerThatHangsUp(t *testing.T) {
	t.Parallel()
	eachBalancer(t, func(t *testing.T, b *running) {
		first, _ := b.send(longPrompt("a"))
		for _, s := range b.servers {
			if s.address.String() == first {
				s.serve(func(w http.ResponseWriter, _ *http.Request) {
					conn, _, err := http.NewResponseController(w).Hijack()
					if err == nil {
						_ = conn.Close()
					}
				})
			}
		}
		second, answer := b.send(longPrompt("a"))
		assert.NotEqual(t, first, second)
		assert.Contains(t, answer, "[DONE]")
		page := b.rest()
		assert.Equal(t, 1.0, page.sum("fairlead_picker_responses_total", "code", "200", "served", "other"))
	})
}

func TestBalancers_WithoutPicker(t *testing.T) {
	t.Parallel()
	eachBalancer(t, func(t *testing.T, b *running) {
		b.send(longPrompt("a"))
		b.rest()
		b.stop()
		<-b.stopped
		servers := map[string]bool{}
		for range 6 {
			server, _ := b.send(longPrompt("a"))
			servers[server] = true
		}
		assert.Len(t, servers, 3, "the servers take turns")
	})
}

func TestBalancers_RefusedRequest(t *testing.T) {
	t.Parallel()
	eachBalancer(t, func(t *testing.T, b *running) {
		for i := range b.servers {
			b.api.remove(t, pathPods, podName(i))
		}
		b.await(func() bool {
			response, err := b.client.Post("http://balancer/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"x"}`))
			require.NoError(t, err)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			return response.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(text), "no ready endpoints")
		}, "the client gets the refusal of the picker")
	})
}

// TestClient runs the client in Python.
func TestClient(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed: apt-get install python3")
	}
	page := pageOf(0, 0, 0, "")
	r := start(t, world{pages: []string{page, page}, flags: withDecisions()})
	for _, s := range r.servers {
		s.serve(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"choices":[{"text":"hello"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`)
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, filepath.Join(examples, "client.py"), "http://"+r.address("decision-bind-address"), "hello").CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "hello")
	page2 := r.metrics()
	assert.Equal(t, 1.0, page2.sum("fairlead_picker_decision_outcomes_total", "event", "completed"))
	assert.Equal(t, 2.0, page2.sampled("llm_d_epp_request_output_tokens"))
	assert.Zero(t, page2.sum(openDecisions))
}
