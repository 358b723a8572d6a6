package components

import (
	"fmt"
	"net"
	"os"
	"slices"

	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/pki"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Users with their own kubeconfig.
const (
	UserAdmin   = "admin"      // for people and tests, with the host address
	UserControl = "localkube"  // the launcher's own process, in the cluster
	UserProxy   = "node-proxy" // each node's service proxy
)

// apiServerNames are the names in the API server's certificate, besides its host address.
var apiServerNames = []string{
	network.ControlIP, network.APIService, "127.0.0.1", "localhost",
	"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
}

// WriteCertificates writes the cluster's CA, all certificates and all kubeconfigs. apiAddress is the API server's address on
// the host.
func WriteCertificates(c *clusterapi.Config, apiAddress string) error {
	if err := os.MkdirAll(PKIDir(c.Dir), 0o700); err != nil {
		return err
	}
	ca, err := pki.New(PKIDir(c.Dir))
	if err != nil {
		return err
	}
	if err := ca.Key("sa.key"); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(apiAddress)
	if err != nil {
		return fmt.Errorf("read host address: %w", err)
	}
	hosts := slices.Clone(apiServerNames)
	if !slices.Contains(hosts, host) {
		hosts = append(hosts, host)
	}
	leaves := []pki.Leaf{
		{Name: "apiserver", CommonName: "kube-apiserver", Hosts: hosts},
		{Name: "apiserver-kubelet", CommonName: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
		{Name: "front-proxy", CommonName: "front-proxy"},
	}
	users := []pki.User{
		{Leaf: pki.Leaf{Name: UserAdmin, CommonName: "admin", Groups: []string{"system:masters"}}, Server: "https://" + apiAddress},
		{Leaf: pki.Leaf{Name: UserControl, CommonName: "localkube", Groups: []string{"system:masters"}}, Server: InnerAPI},
		{Leaf: pki.Leaf{Name: "controller-manager", CommonName: "system:kube-controller-manager"}, Server: InnerAPI},
		{Leaf: pki.Leaf{Name: "scheduler", CommonName: "system:kube-scheduler"}, Server: InnerAPI},
		{Leaf: pki.Leaf{Name: UserProxy, CommonName: "system:kube-proxy"}, Server: InnerAPI},
	}
	for i, n := range c.Nodes {
		name := "system:node:" + n.Name // required by the Node authorizer
		leaves = append(leaves, pki.Leaf{Name: "kubelet-" + n.Name, CommonName: name, Groups: []string{"system:nodes"}, Hosts: []string{network.NodeIP(i + 1), n.Name}})
		users = append(users, pki.User{Leaf: pki.Leaf{Name: n.Name, CommonName: name, Groups: []string{"system:nodes"}}, Server: InnerAPI})
		if n.Yurthub != "" {
			leaves = append(leaves, yurthubLeaf(n.Name, i+1))
		}
	}
	for _, l := range leaves {
		if err := ca.Issue(l); err != nil {
			return fmt.Errorf("issue certificate %s: %w", l.Name, err)
		}
	}
	for _, u := range users {
		if err := ca.Kubeconfig(u); err != nil {
			return fmt.Errorf("write kubeconfig of %s: %w", u.Name, err)
		}
	}
	return nil
}

// YurthubLeaf is the prefix of the name of the certificate of a node's Yurthub.
const YurthubLeaf = "yurthub-"

// yurthubLeaf is the certificate of the Yurthub of a node, as client and as server. Without one that has all these names, Yurthub would ask
// for another one by a CertificateSigningRequest, which OpenYurt's manager approves.
func yurthubLeaf(node string, index int) pki.Leaf {
	return pki.Leaf{
		Name: YurthubLeaf + node, CommonName: "system:node:" + node, Groups: []string{"openyurt:yurthub", "system:nodes"},
		Hosts: []string{
			"127.0.0.1", network.NodeIP(index), network.APIService, "169.254.2.1", // the last one is the address for pods
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		},
	}
}
