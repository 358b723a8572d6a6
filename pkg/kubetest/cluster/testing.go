package cluster

import (
	"os"
	"testing"

	"fairlead.dev/pkg/kubetest/clusterapi"
)

// ControlPlaneOnly asks Start for etcd and the API server alone.
func ControlPlaneOnly(c *clusterapi.Config) { c.ControlPlaneOnly = true }

// FastTimings asks Start for a cluster that notices a dead node within seconds.
func FastTimings(c *clusterapi.Config) { c.Timings = clusterapi.FastTimings() }

// Nodes asks Start for n nodes.
func Nodes(n int) func(*clusterapi.Config) {
	return func(c *clusterapi.Config) { c.Nodes = make([]clusterapi.Node, n) }
}

// Start gives tb a cluster, which ends with it. A missing binary fails the test and names the target that builds it.
func Start(tb testing.TB, configure ...func(*clusterapi.Config)) *Cluster {
	tb.Helper()
	dir, err := os.MkdirTemp("", "localkube-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := clusterapi.Config{Dir: dir}
	for _, f := range configure {
		f(&cfg)
	}
	c, err := Launch(tb.Context(), Params{Config: cfg})
	if err != nil {
		tb.Fatalf("cluster: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			c.keep(tb)
		}
		c.Stop()
	})
	return c
}
