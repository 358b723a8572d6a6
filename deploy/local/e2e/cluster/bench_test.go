package cluster_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Bounds for an idle machine of two cores.
const (
	maxNodeStart         = 5 * time.Second
	maxControlPlaneStart = 4 * time.Second
	maxIdleMB            = 600
	// settled is when a cluster that has just started is idle.
	settled = 10 * time.Second
)

func BenchmarkStart(b *testing.B) {
	benchmarks := []struct {
		name      string
		configure func(*clusterapi.Config)
		bound     time.Duration
	}{
		{name: "node", configure: cluster.Nodes(1), bound: maxNodeStart},
		{name: "control-plane", configure: cluster.ControlPlaneOnly, bound: maxControlPlaneStart},
	}
	idle := isIdle(b) // before they are what the machine is busy with
	for _, bb := range benchmarks {
		b.Run(bb.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				c := cluster.Start(b, bb.configure)
				took = append(took, time.Duration(c.Seconds*float64(time.Second)))
				c.Stop()
			}
			slices.Sort(took)
			median := took[len(took)/2]
			b.ReportMetric(median.Seconds(), "s/start")
			if idle {
				assert.Less(b, median, bb.bound)
			}
		})
	}
}

func BenchmarkIdleMemory(b *testing.B) {
	c := cluster.Start(b)
	time.Sleep(settled) // a benchmark: no event marks an idle cluster
	var megabytes int
	for b.Loop() {
		megabytes = memoryOf(b, c.LauncherPID()) >> 20
	}
	b.ReportMetric(float64(megabytes), "MB")
	assert.Less(b, megabytes, maxIdleMB)
}

// isIdle reports whether the load of the machine is low enough for bounds of the start time, and logs a high load.
func isIdle(b *testing.B) bool {
	b.Helper()
	raw, err := os.ReadFile("/proc/loadavg")
	require.NoError(b, err)
	var load float64
	_, err = fmt.Sscan(string(raw), &load)
	require.NoError(b, err)
	if load > float64(runtime.NumCPU())/2 {
		b.Logf("the machine is busy (load %.1f): the bounds of the start do not count", load)
		return false
	}
	return true
}

// memoryOf is what a process and all its descendants use, in bytes; what they share counts once.
func memoryOf(b *testing.B, root int) int {
	b.Helper()
	total := 0
	for _, pid := range append(below(parents(b), root), root) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		require.NoError(b, err)
		for line := range strings.Lines(string(raw)) {
			var kilobytes int
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &kilobytes); err == nil {
				total += kilobytes << 10
			}
		}
	}
	return total
}
