package flow

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// size is the size of a cluster.
type size struct {
	slices, endpoints, nodes, pool int

	slow int // watches that are hardly read
}

// fill creates nodes and slices.
func (w *world) fill(n size) {
	w.t.Helper()
	w.parallel(n.nodes, func(ctx context.Context, i int) error {
		pool := "cloud"
		if i < n.pool {
			pool = "edge"
		}
		_, err := w.direct.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{poolKey: pool}}}, metav1.CreateOptions{})
		return err
	})
	w.parallel(n.slices, func(ctx context.Context, i int) error {
		_, err := w.direct.DiscoveryV1().EndpointSlices("default").Create(ctx, n.slice(i, 0), metav1.CreateOptions{})
		return err
	})
}

// rollOut replaces every pod of every slice.
func (w *world) rollOut(n size) {
	w.t.Helper()
	w.parallel(n.slices, func(ctx context.Context, i int) error {
		_, err := w.direct.DiscoveryV1().EndpointSlices("default").Update(ctx, n.slice(i, 1), metav1.UpdateOptions{})
		return err
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d.example.internal", i) }

// slice returns a slice whose endpoints look like those of real pods: spread over all nodes, with addresses of their nodes, random names and random UIDs.
func (n size) slice(i int, generation uint64) *discoveryv1.EndpointSlice {
	r := rand.New(rand.NewPCG(uint64(i), generation))
	s := slice("default", fmt.Sprintf("service-%d", i), fmt.Sprintf("service-%d-abcde", i))
	for range n.endpoints {
		node := r.IntN(n.nodes)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", node>>8, node&255, 2+r.IntN(250))},
			Conditions: discoveryv1.EndpointConditions{Ready: pointer(true), Serving: pointer(true), Terminating: pointer(false)},
			NodeName:   pointer(nodeName(node)), Zone: pointer("zone-a"),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("service-%d-7c9d8f6b5%d-%s", i, i%10, randomName(r)),
				UID: types.UID(fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", r.Uint32(), r.IntN(1<<16), r.IntN(1<<12), 0x8000|r.IntN(1<<14), r.Uint64N(1<<48))),
			},
		})
	}
	return s
}

// randomName returns the random part of the name of a pod.
func randomName(r *rand.Rand) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	name := make([]byte, 5)
	for i := range name {
		name[i] = letters[r.IntN(len(letters))]
	}
	return string(name)
}

func (w *world) parallel(n int, do func(ctx context.Context, i int) error) {
	w.t.Helper()
	var all sync.WaitGroup
	next, failed := make(chan int), make(chan error, n)
	for range 16 {
		all.Go(func() {
			for i := range next {
				if err := do(w.t.Context(), i); err != nil {
					failed <- err
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	close(failed)
	require.NoError(w.t, <-failed)
}

func buildCache(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "edge-cache")
	out, err := exec.Command("go", "build", "-o", binary, "../..").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// measured is a cache in a process of its own.
type measured struct {
	*edge

	binary string
	cmd    *exec.Cmd
}

func (e *edge) measured(binary string) *measured {
	p := &measured{edge: e, binary: binary}
	p.launch()
	e.t.Cleanup(p.kill)
	return p
}

func (p *measured) launch() {
	p.t.Helper()
	c := p.cfg
	p.cmd = exec.Command(p.binary, "--pool="+c.Pool.Name, "--kubeconfig="+c.Upstream.Kubeconfig, "--listen-address="+c.Client.Address,
		"--credentials-dir="+c.Client.CredentialsDir, "--namespace-file="+c.Client.NamespaceFile, "--data-dir="+c.Data.Dir,
		"--health-probe-bind-address="+c.HTTP.HealthAddress, "--metrics-bind-address="+c.HTTP.MetricsAddress)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(p.t, p.cmd.Start())
}

func (p *measured) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// memory returns a line of /proc/<pid>/status in MB.
func (p *measured) memory(name string) float64 {
	p.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, found := strings.CutPrefix(line, name+":"); found {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(p.t, err)
			return float64(kb) / 1000
		}
	}
	return 0
}

// sum returns the sum of a metric, over the series whose labels contain a text.
func (p *measured) sum(name, labels string) float64 {
	p.t.Helper()
	response, err := http.Get("http://" + p.cfg.HTTP.MetricsAddress + "/metrics")
	require.NoError(p.t, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	sum := 0.0
	for line := range strings.Lines(string(raw)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if found, rest, _ := strings.Cut(series, "{"); found == name && strings.Contains(rest, labels) {
			v, err := strconv.ParseFloat(value, 64)
			require.NoError(p.t, err)
			sum += v
		}
	}
	return sum
}
