//go:build system

package hermetic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/addressfile"
	"fairlead.dev/pkg/kubetest"
)

// emulators are the addresses of three emulated model servers, whose prompts take 1 to 2 ms and answers 10 ms.
type emulators [3]string

// adapter is the adapter that all emulated model servers have, except the one without.
const adapter = "adapter"

// buildEmulator builds the emulated model server.
func buildEmulator(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "modelserver")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./modelserver")
	build.Dir, build.Env = filepath.Join("..", "..", "..", "..", "deploy", "emulators"), append(os.Environ(), "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// startEmulators starts three emulated model servers.
func startEmulators(t *testing.T, program string, without int) (e emulators) {
	t.Helper()
	dir := t.TempDir()
	for i := range e {
		file := filepath.Join(dir, fmt.Sprintf("%d.json", i))
		flags := []string{
			"--port=0", "--address-file=" + file, "--model=m", "--step-base=1ms", "--step-per-seq=0s", "--prefill-per-token=2us",
			"--max-num-batched-tokens=16384", "--log-level=error",
		}
		if i != without {
			flags = append(flags, "--lora-modules="+adapter)
		}
		command := exec.Command(program, flags...)
		require.NoError(t, command.Start())
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait() // killed
		})
		require.Eventually(t, func() bool {
			addresses, err := addressfile.Read(file)
			e[i] = strings.Replace(addresses["http"], "[::]", "127.0.0.1", 1)
			return err == nil
		}, kubetest.Patience, tick, "listening")
	}
	return e
}

// fail gives some of the servers a fault, and none to the others.
func (e emulators) fail(t *testing.T, fault string, servers ...int) {
	t.Helper()
	set := func(i int, body string) {
		response, err := http.Post("http://"+e[i]+"/admin/faults", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
	for i := range e {
		set(i, "{}")
	}
	for _, i := range servers {
		set(i, fmt.Sprintf(`{"answer":%q}`, fault))
	}
}

// proxy runs a picker with the proxy listener in front of the servers. An ejection lasts longer than the test, so that what it counts
// does not depend on the speed of the machine: it is simulations that have probes.
func (e emulators) proxy(t *testing.T, flags ...string) *rig {
	t.Helper()
	endpoints := []object{}
	for i, address := range e {
		host, port, _ := strings.Cut(address, ":")
		endpoints = append(endpoints, object{"name": podName(i), "namespace": "ns", "address": host, "port": json.Number(port)})
	}
	text, err := json.Marshal(object{"endpoints": endpoints})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "endpoints.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	r := &rig{t: t, flags: append([]string{
		proxyFlag, "--endpoints-file=" + file, "--grpc-port=0", "--grpc-health-port=0", "--metrics-bind-address=127.0.0.1:0",
		"--health-probe-bind-address=127.0.0.1:0", "--secure-serving=false", "--drain-delay=0s", "--drain-timeout=20s",
		"--ejection-time=5m", "--ejection-time-max=5m",
	}, flags...)}
	r.launch()
	r.await(func() bool { return r.metrics().sum("llm_d_epp_ready_endpoints") == float64(len(e)) }, "ready")
	t.Cleanup(r.settle)
	return r
}

const (
	requestsOfRun = 500
	// clientsOfRun are the requests at a time, so that few are on their way when a server begins to fail, on a slow machine, too.
	clientsOfRun = 6
)

// outcome is what clients of one run have received.
type outcome struct {
	early, late float64        // parts of the requests without a whole answer: of the first third of the requests, and of the others
	answers     map[string]int // how many have each answer, of those without a whole one
}

// run sends requests for models in turn, of which no two have a beginning in common. Clients go after their patience, if it is above 0.
func (r *rig) run(patience time.Duration, models ...string) outcome {
	r.t.Helper()
	client := r.client()
	got := outcome{answers: map[string]int{}}
	var mu sync.Mutex
	var clients sync.WaitGroup
	var number atomic.Int32
	for range clientsOfRun {
		clients.Go(func() {
			for i := number.Add(1); i <= requestsOfRun; i = number.Add(1) {
				answer, whole := ask(r.t.Context(), client, r.proxy(), models[int(i)%len(models)], int(i), patience)
				if whole {
					continue
				}
				mu.Lock()
				got.answers[answer]++
				if i <= requestsOfRun/3 {
					got.early += 1.0 / requestsOfRun
				} else {
					got.late += 1.0 / requestsOfRun
				}
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return got
}

// ask sends a request. It returns the status and the beginning of the answer, and whether it is a whole one.
func ask(ctx context.Context, client *http.Client, base, model string, number int, patience time.Duration) (answer string, whole bool) {
	if patience > 0 {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = limited
	}
	text := fmt.Sprintf(`{"model":%q,"stream":true,"max_tokens":8,"messages":[{"role":"user","content":"%08d%s"}]}`, model, number, strings.Repeat(" words", 200))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/chat/completions", strings.NewReader(text))
	if err != nil {
		return err.Error(), false
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Transport.RoundTrip(request) // redirects are answers
	if err != nil {
		return "none", false
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	whole = err == nil && strings.Contains(string(body), `"finish_reason":"length"`) && strings.HasSuffix(string(body), "data: [DONE]\n\n")
	return fmt.Sprintf("%s %.40s", response.Status, strings.Split(string(body), "chatcmpl-")[0]), whole // the rest has identifiers
}

// mostEjected returns how many servers were ejected at a time.
func (r *rig) mostEjected() (most int) {
	now := 0
	for _, entry := range r.logs.All() {
		switch entry.Message {
		case "Ejected endpoint":
			now++
		case "Restored endpoint":
			now--
		}
		most = max(most, now)
	}
	return most
}

// TestFaults has the picker in front of real servers, of which one or all have a fault. deploy/local/e2e/picker has all faults.
func TestFaults(t *testing.T) {
	t.Parallel()
	const broken = 1
	program := buildEmulator(t)
	tests := []struct {
		fault    string
		seen     bool          // clients see it, as another server cannot help: the answer has begun, or the request may be wrong
		patience time.Duration // of clients, if the server never answers
	}{
		{fault: "500"},
		{fault: "429,rate=0.1"},
		{fault: "404", seen: true},
		{fault: "error-sglang,delay=50ms"},
		{fault: "login"},
		{fault: "half", seen: true},
		{fault: "drop,rate=0.1", seen: true},
		{fault: "hang", seen: true, patience: time.Second},
		{fault: "stall", seen: true, patience: time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			e := startEmulators(t, program, -1)
			e.fail(t, tt.fault, broken)
			picker := e.proxy(t, "--proxy-max-attempts=1")
			got := picker.run(tt.patience, "m")
			for _, entry := range picker.logs.FilterMessage("Ejected endpoint").All() {
				assert.NotEmpty(t, entry.ContextMap()["lastFailures"])
				assert.NotContains(t, entry.ContextMap()["lastFailures"], "")
			}
			assert.Positive(t, got.early, "no request met the fault: the test shows nothing")
			assert.LessOrEqual(t, got.early, 0.03, "%v", got.answers)
			assert.LessOrEqual(t, got.late, 0.01, "%v", got.answers)
			if !tt.seen {
				assert.Empty(t, e.proxy(t).run(0, "m").answers, "another server answers")
			}
			if tt.patience > 0 {
				return
			}
			fault, _, _ := strings.Cut(tt.fault, ",")
			e.fail(t, fault, 0, 1, 2)
			r := e.proxy(t)
			own, _ := ask(t.Context(), r.client(), "http://"+e[0], "m", 0, 0)
			assert.Equal(t, map[string]int{own: requestsOfRun}, r.run(0, "m").answers, "the answers of the servers themselves")
			assert.LessOrEqual(t, r.mostEjected(), len(e)/2)
		})
	}
}

// TestAdapterThatOneServerLacks has requests for a model that all servers have, and for an adapter that one of them answers with 404.
func TestAdapterThatOneServerLacks(t *testing.T) {
	t.Parallel()
	r := startEmulators(t, buildEmulator(t), 1).proxy(t)
	got := r.run(0, "m", adapter)
	refused := 0
	for answer, n := range got.answers {
		assert.Contains(t, answer, "404")
		refused += n
	}
	assert.Positive(t, refused, "no request met the server: the test shows nothing")
	assert.LessOrEqual(t, refused, 2+clientsOfRun, "%v", got.answers)
	assert.Zero(t, r.mostEjected(), "it gets the other requests")
	assert.InDelta(t, 1, r.metrics().sum("fairlead_picker_ejections_total", "cause", "model"), 0)
	messages := r.logs.FilterMessageSnippet("Endpoint refused all requests for a model").All()
	require.Len(t, messages, 1)
	assert.Equal(t, adapter, messages[0].ContextMap()["model"])
	assert.Equal(t, "status 404", messages[0].ContextMap()["failure"])
}
