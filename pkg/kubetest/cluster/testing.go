package cluster

import (
	"os"
	"testing"

	"fairlead.dev/pkg/kubetest/clusterapi"
)

// ControlPlaneOnly makes Start start only etcd and the API server.
func ControlPlaneOnly(c *clusterapi.Config) { c.ControlPlaneOnly = true }

// Audit makes Start log the requests to the API server: see package audit.
func Audit(c *clusterapi.Config) { c.Audit = true }

// FastTimings makes Start configure a cluster that detects a dead node within seconds.
func FastTimings(c *clusterapi.Config) { c.Timings = clusterapi.FastTimings() }

// UserspaceProxy makes Start serve Services with the proxy of localkube, even where kube-proxy works.
func UserspaceProxy(c *clusterapi.Config) { c.ServiceProxy = clusterapi.ProxyUserspace }

// Nodes makes Start start n nodes.
func Nodes(n int) func(*clusterapi.Config) {
	return func(c *clusterapi.Config) { c.Nodes = make([]clusterapi.Node, n) }
}

// Start starts a cluster, and stops it when the test ends. If the binary is missing, the test fails with the name of the make
// target that builds it. With KubeconfigEnv, Start uses the cluster of that kubeconfig, and deletes the test's objects when the test ends.
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
	if kubeconfig := os.Getenv(KubeconfigEnv); kubeconfig != "" && !cfg.ControlPlaneOnly {
		return startForeign(tb, kubeconfig, &cfg)
	}
	c, err := Launch(tb.Context(), Params{Config: cfg})
	if err != nil {
		tb.Fatalf("cluster: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			c.SaveArtifacts(tb)
		}
		c.Stop()
	})
	return c
}
