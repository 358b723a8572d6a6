// Package components computes the command lines of the control plane's programs. It is pure: a configuration in, flags out.
package components

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Addresses of the control plane inside the cluster's namespaces.
const (
	etcdClientURL = "http://127.0.0.1:2379"
	etcdPeerURL   = "http://127.0.0.1:2380"
	apiPort       = "6443"
	// KubeProxyMetricsPort is the port of kube-proxy's metrics, on the node's address.
	KubeProxyMetricsPort = "10249"
)

// InnerAPI is the API server's URL inside the cluster.
const InnerAPI = "https://" + network.ControlIP + ":" + apiPort

// EtcdDir is the folder of etcd's data in a cluster's folder.
func EtcdDir(dir string) string { return filepath.Join(dir, "etcd") }

// PKIDir is the folder of certificates and kubeconfigs in a cluster's folder.
func PKIDir(dir string) string { return filepath.Join(dir, "pki") }

// Kubeconfig is the path of a user's kubeconfig in a cluster's folder.
func Kubeconfig(dir, user string) string { return filepath.Join(PKIDir(dir), user+".kubeconfig") }

// Control lists the control plane's programs in their start order.
func Control(c *clusterapi.Config) []string {
	if c.ControlPlaneOnly {
		return []string{clusterapi.Etcd, clusterapi.APIServer}
	}
	return []string{clusterapi.Etcd, clusterapi.APIServer, clusterapi.ControllerManager, clusterapi.Scheduler}
}

// Args returns the flags of one program: ours, then those of the configuration, which take precedence.
func Args(c *clusterapi.Config, name string) []string {
	var args []string
	switch name {
	case clusterapi.Etcd:
		args = etcd(c)
	case clusterapi.APIServer:
		args = apiServer(c)
	case clusterapi.ControllerManager:
		args = controllerManager(c)
	case clusterapi.Scheduler:
		args = scheduler(c)
	}
	return append(args, c.Args[name]...)
}

func etcd(c *clusterapi.Config) []string {
	return []string{
		"--data-dir=" + EtcdDir(c.Dir), "--log-level=warn",
		"--unsafe-no-fsync", // data must survive a crash of processes, not of the machine
		"--listen-client-urls=" + etcdClientURL, "--advertise-client-urls=" + etcdClientURL,
		"--listen-peer-urls=" + etcdPeerURL, "--initial-advertise-peer-urls=" + etcdPeerURL, "--initial-cluster=default=" + etcdPeerURL,
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=5m",
	}
}

// Snapshot returns the localkube command that writes a snapshot of the running etcd.
func Snapshot(file string) []string {
	return []string{"etcd-snapshot", "--endpoint=" + etcdClientURL, "--file=" + file}
}

// Restore returns the localkube command that creates a data folder from a snapshot.
func Restore(file, dir string) []string {
	return []string{"etcd-restore", "--file=" + file, "--data-dir=" + dir, "--peer-url=" + etcdPeerURL}
}

func apiServer(c *clusterapi.Config) []string {
	pki := func(name string) string { return filepath.Join(PKIDir(c.Dir), name) }
	args := []string{
		verbosity(c), "--etcd-servers=" + etcdClientURL,
		"--secure-port=" + apiPort, "--bind-address=0.0.0.0", "--advertise-address=" + network.ControlIP,
		"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"), "--client-ca-file=" + pki("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki("sa.key"), "--service-account-signing-key-file=" + pki("sa.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=" + network.ServiceCIDR, "--allow-privileged=true",
		"--kubelet-client-certificate=" + pki("apiserver-kubelet.crt"), "--kubelet-client-key=" + pki("apiserver-kubelet.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--proxy-client-cert-file=" + pki("front-proxy.crt"), "--proxy-client-key-file=" + pki("front-proxy.key"),
		"--requestheader-client-ca-file=" + pki("ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--default-not-ready-toleration-seconds=" + strconv.FormatInt(*c.Timings.TolerationSeconds, 10),
		"--default-unreachable-toleration-seconds=" + strconv.FormatInt(*c.Timings.TolerationSeconds, 10),
	}
	if c.ControlPlaneOnly { // nothing creates the service accounts that this plug-in requires
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if c.Audit {
		args = append(args, "--audit-log-path="+clusterapi.AuditFile(c.Dir), "--audit-policy-file="+AuditPolicy(c.Dir))
	}
	return args
}

// AuditPolicy is the path of the audit policy in a cluster's folder.
func AuditPolicy(dir string) string { return filepath.Join(dir, "audit-policy.yaml") }

// AuditPolicyText logs the user, verb and object of each request once.
const AuditPolicyText = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

func controllerManager(c *clusterapi.Config) []string {
	pki := func(name string) string { return filepath.Join(PKIDir(c.Dir), name) }
	return append(client(c, "controller-manager"),
		"--use-service-account-credentials", "--service-account-private-key-file="+pki("sa.key"), "--root-ca-file="+pki("ca.crt"),
		"--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"),
		"--service-cluster-ip-range="+network.ServiceCIDR, "--allocate-node-cidrs=false",
		"--node-monitor-period="+duration(c.Timings.MonitorPeriod.Duration),
		"--node-monitor-grace-period="+duration(c.Timings.MonitorGracePeriod.Duration))
}

func scheduler(c *clusterapi.Config) []string { return client(c, "scheduler") }

// client returns the flags of a client of the API server. The default of 20 requests per second would delay the controller
// manager's start by 5 s.
func client(c *clusterapi.Config, user string) []string {
	return []string{verbosity(c), "--kubeconfig=" + Kubeconfig(c.Dir, user), "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=300", "--kube-api-burst=600"}
}

// KubeProxy returns the flags of kube-proxy on node index: ours, then those of the configuration, which take precedence. It
// must not change limits of connection tracking: they belong to the machine.
func KubeProxy(c *clusterapi.Config, index int, node string) []string {
	return append([]string{verbosity(c), "--kubeconfig=" + Kubeconfig(c.Dir, UserProxy), "--hostname-override=" + node,
		"--proxy-mode=nftables", "--cluster-cidr=" + network.PodsCIDR,
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		"--metrics-bind-address=" + net.JoinHostPort(network.NodeIP(index), KubeProxyMetricsPort),
	}, c.Args[clusterapi.KubeProxy]...)
}

func verbosity(c *clusterapi.Config) string { return fmt.Sprintf("--v=%d", c.Verbosity) }

func duration(d time.Duration) string { return d.String() }
