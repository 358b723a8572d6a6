// Package yurthub prepares a node for OpenYurt's Yurthub: a proxy of the API server on the node, which keeps what the kubelet reads, and
// answers it from disk while the API server is away. localkube links no Yurthub; the configuration of a node names the program.
//
// A node joins as `yurtadm join` leaves it behind: with certificates, and with the objects that Yurthub needs in the cluster.
package yurthub

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Proxy is the URL at which Yurthub serves the node's kubelet.
const Proxy = "http://127.0.0.1:10261"

// Objects are what Yurthub reads in the cluster: its configuration, and the right to read it.
//
//go:embed objects.yaml
var Objects string

// Install writes Yurthub's certificates and its kubeconfig to the folder root, if it is new.
func Install(c *clusterapi.Config, node, root string) error {
	folder := filepath.Join(root, "pki")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	read := func(file string) ([]byte, error) { return os.ReadFile(filepath.Join(components.PKIDir(c.Dir), file)) }
	ca, err := read("ca.crt")
	if err != nil {
		return err
	}
	certificate, err := read(components.YurthubLeaf + node + ".crt")
	if err != nil {
		return err
	}
	key, err := read(components.YurthubLeaf + node + ".key")
	if err != nil {
		return err
	}
	kubeconfig, err := read(node + ".kubeconfig")
	if err != nil {
		return err
	}
	pair := append(certificate, key...)
	for file, content := range map[string][]byte{
		"pki/ca.crt": ca, "pki/yurthub-current.pem": pair, "pki/yurthub-server-current.pem": pair, "yurthub.conf": kubeconfig,
	} {
		path := filepath.Join(root, file)
		if _, err := os.Stat(path); err == nil {
			continue // of an earlier boot
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("install Yurthub: %w", err)
		}
	}
	return nil
}

// Args returns the flags of Yurthub on node index, as a node of the edge has them. The network device for pods that use Yurthub is left
// out, and so are NodePools: OpenYurt's kinds are not in the cluster.
func Args(node clusterapi.Node, index int, root string) []string {
	return []string{
		"--v=2", "--node-name=" + node.Name, "--node-ip=" + network.NodeIP(index), "--nodepool-name=" + node.Labels[clusterapi.PoolLabel],
		"--server-addr=" + components.InnerAPI, "--root-dir=" + root, "--disk-cache-path=" + filepath.Join(root, "cache"),
		"--bootstrap-file=" + filepath.Join(root, "bootstrap-hub.conf"), "--enable-dummy-if=false", "--enable-node-pool=false",
	}
}
