//go:build system

package simulation

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
)

// buildEmulator returns the program.
func buildEmulator(b *testing.B) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), "modelserver")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", program, "./modelserver")
	build.Dir, build.Env = filepath.Join("..", "..", "..", "..", "..", "deploy", "emulators"), append(os.Environ(), "GOWORK=off")
	out, err := build.CombinedOutput()
	require.NoError(b, err, string(out))
	return program
}

// startEmulator starts the emulated model server until the end of the benchmark, and returns its address.
func startEmulator(b *testing.B, program string) string {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, program, "--port=0", "--profile=realistic", "--model=m", "--log-level=info")
	log, err := command.StderrPipe()
	require.NoError(b, err)
	require.NoError(b, command.Start())
	address := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		port := regexp.MustCompile(`"address":"[^"]*:(\d+)"`)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if found := port.FindSubmatch(lines.Bytes()); found != nil && len(address) == 0 {
				address <- net.JoinHostPort("127.0.0.1", string(found[1]))
			}
		}
	})
	b.Cleanup(func() {
		cancel()
		reading.Wait()
		_ = command.Wait()
	})
	select {
	case a := <-address:
		return a
	case <-time.After(20 * time.Second):
		b.Fatal("the emulator does not listen")
		return ""
	}
}

// emulateAlone serves the requests on the emulator in real time, while its page is read.
func emulateAlone(b *testing.B, address string, arrivals []*arrival) []answered {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(b.Context())
	var requests, pages sync.WaitGroup
	pages.Go(func() {
		for every := time.NewTicker(pageInterval); ; {
			select {
			case <-ctx.Done():
				every.Stop()
				return
			case <-every.C:
				_, _ = get(ctx, client, "http://"+address+"/metrics")
			}
		}
	})
	answers, errs := make([]answered, len(arrivals)), make([]error, len(arrivals))
	for i, a := range arrivals {
		body := completion(a)
		requests.Go(func() {
			time.Sleep(a.at)
			answers[i], errs[i] = complete(ctx, client, "http://"+address+"/v1/completions", body, a.out)
		})
	}
	requests.Wait()
	cancel()
	pages.Wait()
	for _, err := range errs {
		require.NoError(b, err)
	}
	return answers
}

// complete sends a request, and measures its answer of a number of tokens.
func complete(ctx context.Context, client *http.Client, url string, body []byte, tokens int) (answered, error) {
	sent := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return answered{}, err
	}
	defer response.Body.Close()
	var first, last time.Time
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "data: {") {
			continue
		}
		if last = time.Now(); first.IsZero() {
			first = last
		}
	}
	if first.IsZero() {
		return answered{}, fmt.Errorf("no token in an answer of status %d", response.StatusCode)
	}
	return answered{first.Sub(sent), last.Sub(first) / time.Duration(tokens-1)}, nil
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// counters are the emulator's own measurements, without the network and its own HTTP.
type counters struct{ ttft, firsts, between, tokens, hits float64 }

func readCounters(b *testing.B, address string) counters {
	b.Helper()
	page, err := get(b.Context(), http.DefaultClient, "http://"+address+"/metrics")
	require.NoError(b, err)
	value := func(name string) float64 {
		found := regexp.MustCompile(`(?m)^vllm:` + name + `\{[^}]*\} (\S+)$`).FindStringSubmatch(page)
		require.NotNil(b, found, name)
		v, err := strconv.ParseFloat(found[1], 64)
		require.NoError(b, err)
		return v
	}
	return counters{
		value("time_to_first_token_seconds_sum"), value("time_to_first_token_seconds_count"),
		value("inter_token_latency_seconds_sum"), value("inter_token_latency_seconds_count"), value("prefix_cache_hits_total"),
	}
}

// BenchmarkEmulator compares the emulated model server of whole-system tests, in real time, with a simulated one in virtual time: the same
// requests on one server with the same parameters. Both have an engine of their own on purpose, so each is a check of the other. It prints
// the times of the emulator to those of the simulation: as clients measure them, and as the emulator itself does, without HTTP and the
// machine. It takes 45 seconds of real time, and says something on a machine with an idle core only.
func BenchmarkEmulator(b *testing.B) {
	skipUnlessSelected(b, "it compares real with virtual time")
	program := buildEmulator(b)
	for b.Loop() {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(w, "\nload\tttft\tp99\tper token\tttft÷\tp99÷\tper token÷\tengine ttft÷\tengine per token÷\t\n")
		for _, load := range []struct {
			name string
			rate float64
			n    int
		}{{"2/s", 2, 25}, {"8/s", 8, 100}, {"14/s", 14, 180}} {
			address := startEmulator(b, program) // with an empty cache
			arrivals := prompts(load.rate, load.n)
			simulated := simulateAlone(arrivals)
			inRealTime := emulateAlone(b, address, arrivals)
			own := readCounters(b, address)
			s, r := timesOf(simulated), timesOf(inRealTime)
			fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", load.name, milliseconds(s.ttft.Mean), milliseconds(s.ttft.P99), milliseconds(s.perToken),
				ratio(r.ttft.Mean, s.ttft.Mean), ratio(r.ttft.P99, s.ttft.P99), ratio(r.perToken, s.perToken),
				own.ttft/own.firsts/s.ttft.Mean.Seconds(), own.between/own.tokens/weighted(simulated, arrivals).Seconds())
		}
		fmt.Fprintln(w)
		_ = w.Flush()
	}
}

// aloneTimes summarize the answers of one server.
type aloneTimes struct {
	ttft     Times
	perToken time.Duration // mean over the requests
}

func timesOf(all []answered) aloneTimes {
	var ttft, perToken []time.Duration
	for _, a := range all {
		ttft, perToken = append(ttft, a.ttft), append(perToken, a.perToken)
	}
	return aloneTimes{NewTimes(ttft), NewTimes(perToken).Mean}
}

// weighted returns the mean time per token over the tokens, as the emulator counts.
func weighted(all []answered, arrivals []*arrival) time.Duration {
	sum, tokens := time.Duration(0), 0
	for i, a := range all {
		n := arrivals[i].out - 1
		sum, tokens = sum+a.perToken*time.Duration(n), tokens+n
	}
	return sum / time.Duration(tokens)
}
