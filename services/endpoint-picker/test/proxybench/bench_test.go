//go:build system

package proxybench

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest"
)

const (
	duration  = 4 * time.Second
	rounds    = 3
	servers   = 4
	events    = 20
	interval  = 2 * time.Millisecond // between two events
	bodySize  = 5000
	clients   = 400               // connections
	tickTime  = time.Second / 100 // of /proc/PID/stat: USER_HZ
	page      = "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0\n"
	eventText = `data: {"id":"cmpl-1","object":"text_completion","model":"m","choices":[{"index":0,"text":" token","finish_reason":null}]}` + "\n\n"
)

// rate is the number of requests per second.
var rate = flag.Int("rate", 1000, "requests per second")

// BenchmarkStreams sends requests at a constant rate, each with a stream of 20 events, directly, through nginx and through the
// picker.
func BenchmarkStreams(b *testing.B) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		b.Skip("nginx is not installed")
	}
	var addresses []string
	for range servers {
		addresses = append(addresses, serveModel(b))
	}
	targets := []*target{
		{name: "direct", network: "tcp", address: addresses[0]},
		startNginx(b, nginx, addresses),
		startPicker(b, addresses),
	}
	results := map[string][]result{}
	for b.Loop() {
		for range rounds {
			for _, t := range targets {
				results[t.name] = append(results[t.name], load(b, t))
			}
		}
	}
	for _, t := range targets {
		r := results[t.name]
		median := func(of func(result) float64) float64 {
			var values []float64
			for _, one := range r {
				values = append(values, of(one))
			}
			slices.Sort(values)
			return values[len(values)/2]
		}
		b.ReportMetric(median(func(r result) float64 { return r.cpu }), t.name+"-cpu-us/req")
		b.ReportMetric(median(func(r result) float64 { return r.first(0.5) }), t.name+"-first-p50-ms")
		b.ReportMetric(median(func(r result) float64 { return r.first(0.99) }), t.name+"-first-p99-ms")
		b.ReportMetric(median(func(r result) float64 { return float64(r.failed) }), t.name+"-failed")
	}
}

// target is where requests are sent.
type target struct {
	name    string
	network string
	address string
	pids    []int
}

// cpu returns the processor time that the target has used.
func (t *target) cpu(b *testing.B) time.Duration {
	b.Helper()
	var ticks int64
	for _, pid := range t.pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(b, err)
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
		for _, f := range fields[11:13] { // user and system time: proc(5)
			n, err := strconv.ParseInt(f, 10, 64)
			require.NoError(b, err)
			ticks += n
		}
	}
	return time.Duration(ticks) * tickTime
}

// result is one run.
type result struct {
	cpu    float64 // microseconds of each request
	firsts []time.Duration
	failed int
}

// first returns a quantile of the times to the first event, in milliseconds.
func (r result) first(q float64) float64 {
	if len(r.firsts) == 0 {
		return 0
	}
	return r.firsts[int(q*float64(len(r.firsts)-1))].Seconds() * 1000
}

// load sends requests at a constant rate, whatever the responses do.
func load(b *testing.B, t *target) result {
	b.Helper()
	request := []byte(fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: models\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", bodySize))
	prompt := `{"model": "m", "stream": true, "prompt": "`
	request = append(request, prompt+strings.Repeat("x", bodySize-len(prompt)-2)+`"}`...)
	arrivals := make(chan time.Time, clients)
	var mu sync.Mutex
	var r result
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			c := client{network: t.network, address: t.address, request: request}
			defer c.close()
			for at := range arrivals {
				took, err := c.ask(at)
				mu.Lock()
				if err != nil {
					r.failed++
				} else {
					r.firsts = append(r.firsts, took)
				}
				mu.Unlock()
			}
		})
	}
	before, began, sent := t.cpu(b), time.Now(), 0
	for now := began; now.Before(began.Add(duration)); now = time.Now() {
		for due := int(now.Sub(began).Seconds() * float64(*rate)); sent < due; sent++ {
			arrivals <- time.Now()
		}
		time.Sleep(time.Millisecond)
	}
	close(arrivals)
	running.Wait()
	r.cpu = float64((t.cpu(b) - before).Microseconds()) / float64(sent)
	slices.Sort(r.firsts)
	return r
}

// client sends requests on one connection.
type client struct {
	network string
	address string
	request []byte
	conn    net.Conn
	from    *bufio.Reader
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// ask sends one request, and returns the time from its arrival to the first event.
func (c *client) ask(at time.Time) (time.Duration, error) {
	if c.conn == nil {
		conn, err := net.Dial(c.network, c.address)
		if err != nil {
			return 0, err
		}
		c.conn, c.from = conn, bufio.NewReader(conn)
	}
	took, err := c.exchange(at)
	if err != nil {
		c.close()
	}
	return took, err
}

func (c *client) exchange(at time.Time) (took time.Duration, err error) {
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(c.from, nil)
	if err != nil {
		return 0, err
	}
	body := bufio.NewReaderSize(response.Body, 512)
	n := 0
	for {
		line, err := body.ReadSlice('\n')
		if now := time.Now(); took == 0 {
			took = now.Sub(at)
		}
		if bytes.HasPrefix(line, []byte("data:")) {
			n++
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if n != events || response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %d and %d events", response.StatusCode, n)
	}
	return took, nil
}

// serveModel starts a model server, which costs as little as possible.
func serveModel(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	return l.Addr().String()
}

func answer(c net.Conn) {
	defer func() { _ = c.Close() }()
	from := bufio.NewReader(c)
	event := []byte(fmt.Sprintf("%x\r\n%s\r\n", len(eventText), eventText))
	for {
		q, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, q.Body)
		if q.Method == http.MethodGet {
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(page), page)
			continue
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		for range events {
			if _, err := c.Write(event); err != nil {
				return
			}
			time.Sleep(interval)
		}
		_, _ = io.WriteString(c, "0\r\n\r\n")
	}
}

// startNginx starts nginx with keep-alive and without buffers for responses, as a proxy of streams needs it.
func startNginx(b *testing.B, program string, addresses []string) *target {
	b.Helper()
	dir := b.TempDir()
	socket := filepath.Join(dir, "http")
	var upstream strings.Builder
	for _, a := range addresses {
		fmt.Fprintf(&upstream, "server %s; ", a)
	}
	config := fmt.Sprintf(`daemon off; master_process off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/log;
events { worker_connections 4096; }
http {
	access_log off; keepalive_requests 1000000; client_body_buffer_size 64k;
	client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
	upstream models { %[2]s keepalive 400; keepalive_requests 1000000; }
	server {
		listen unix:%[3]s;
		location / { proxy_pass http://models; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }
	}
}`, dir, upstream.String(), socket)
	file := filepath.Join(dir, "nginx.conf")
	require.NoError(b, os.WriteFile(file, []byte(config), 0o600))
	command := exec.Command(program, "-c", file, "-p", dir)
	command.Stderr = os.Stderr
	run(b, command)
	for deadline := time.Now().Add(kubetest.Patience); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
			return &target{name: "nginx", network: "unix", address: socket, pids: []int{command.Process.Pid}}
		}
		require.True(b, time.Now().Before(deadline), "nginx does not listen: %v", err)
	}
}

func startPicker(b *testing.B, addresses []string) *target {
	b.Helper()
	dir := b.TempDir()
	var endpoints strings.Builder
	endpoints.WriteString("endpoints:\n")
	for i, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		require.NoError(b, err)
		fmt.Fprintf(&endpoints, "- {name: m%d, address: %s, port: %s}\n", i, host, port)
	}
	file, program := filepath.Join(dir, "endpoints.yaml"), filepath.Join(dir, "endpoint-picker")
	require.NoError(b, os.WriteFile(file, []byte(endpoints.String()), 0o600))
	build := exec.CommandContext(b.Context(), "go", "build", "-o", program, "fairlead.dev/services/endpoint-picker")
	out, err := build.CombinedOutput()
	require.NoError(b, err, string(out))
	command := exec.Command(program,
		"--endpoints-file="+file, "--proxy-bind-address=127.0.0.1:0", "--grpc-port=0", "--grpc-health-port=0",
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", "--drain-delay=0s", "--enable-pprof")
	log, err := command.StderrPipe()
	require.NoError(b, err)
	run(b, command)
	address := make(chan string, 1)
	go func() {
		defer close(address)
		listening := regexp.MustCompile(`"address":"([^"]+)".*"flag":"proxy-bind-address"`)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if found := listening.FindSubmatch(lines.Bytes()); found != nil {
				address <- string(found[1])
			}
		}
	}()
	t := &target{name: "picker", network: "tcp", address: <-address, pids: []int{command.Process.Pid}}
	require.NotEmpty(b, t.address, "the picker does not listen")
	time.Sleep(time.Second) // the first scrapes
	return t
}

// run starts a program until the end of the benchmark.
func run(b *testing.B, command *exec.Cmd) {
	b.Helper()
	require.NoError(b, command.Start())
	b.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
}
