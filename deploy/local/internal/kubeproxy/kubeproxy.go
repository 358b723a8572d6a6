// Package kubeproxy prepares a network namespace for kube-proxy in nftables mode: it finds the nft program, checks that the
// kernel accepts the rules of kube-proxy, and adds further rules for a node of this cluster.
//
// kube-proxy serves Services in the kernel, on the path of the pods' packets. The name server of a node is a process on the
// node itself and has no Service, so kube-proxy must ignore its address.
package kubeproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"fairlead.dev/deploy/local/internal/network"
)

const program = "nft"

// systemDirs contain nft on Debian and Ubuntu. The PATH of an unprivileged user lacks them.
var systemDirs = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}

// checkRules contains one rule of each kind that kube-proxy writes. A kernel without one of their modules refuses all of
// them.
const checkRules = `table ip localkube-check {
	set ips { type ipv4_addr; }
	set pairs { type ipv4_addr . ipv4_addr . inet_proto . inet_service; }
	map services { type ipv4_addr . inet_proto . inet_service : verdict; }
	chain endpoint { ip saddr 10.0.0.1 mark set mark or 0x4000; meta l4proto tcp dnat to 10.0.0.1:80; }
	chain service { ip daddr @ips ip saddr != 10.0.0.0/8 mark set mark or 0x4000; numgen random mod 1 vmap { 0 : goto endpoint }; }
	chain prerouting { type nat hook prerouting priority dstnat; ip daddr . meta l4proto . th dport vmap @services
		fib daddr type local jump service; }
	chain output { type nat hook output priority -100; jump service; }
	chain postrouting {
		type nat hook postrouting priority srcnat
		mark and 0x4000 != 0 mark set mark xor 0x4000 masquerade fully-random
		ct status dnat ip saddr . ip daddr . meta l4proto . th dport @pairs masquerade fully-random
	}
	chain forward { type filter hook forward priority filter; ct state new ip daddr @ips reject; }
}
`

// nodeRules belong to the node, beside the table of kube-proxy. Packets of the name server stay out of connection tracking:
// kube-proxy, which checks only new connections, rejects an address without a Service. Packets that still have a service
// address after kube-proxy are dropped: the default route would send them to the control plane, whose own proxy would serve
// them.
const nodeRules = `table ip localkube {
	chain raw-prerouting { type filter hook prerouting priority raw; ip daddr %[1]s notrack; }
	chain raw-output { type filter hook output priority raw; ip daddr %[1]s notrack; ip saddr %[1]s notrack; }
	chain forward { type filter hook forward priority filter + 10; ip daddr %[2]s drop; }
	chain output { type filter hook output priority filter + 10; ip daddr %[1]s accept; ip daddr %[2]s drop; }
}
`

// Find returns the path of the nft program.
func Find() (string, error) { return find(systemDirs) }

// find searches the PATH, then dirs.
func find(dirs []string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, dir := range dirs {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", errors.New("the program nft is missing: install the package nftables")
}

// Check returns the reason why kube-proxy cannot work in the network namespace of the caller, or nil.
func Check(ctx context.Context) error {
	if err := apply(ctx, checkRules); err != nil {
		return err
	}
	return apply(ctx, "delete table ip localkube-check\n")
}

// SetupNode adds the rules of a node to the network namespace of the caller.
func SetupNode(ctx context.Context) error {
	return apply(ctx, fmt.Sprintf(nodeRules, network.ClusterDNS, network.ServiceCIDR))
}

// Env returns the environment with a PATH that contains nft.
func Env(env []string) []string {
	nft, err := Find()
	if err != nil {
		return env
	}
	path := os.Getenv("PATH")
	if path != "" {
		path += string(os.PathListSeparator)
	}
	return append(env, "PATH="+path+filepath.Dir(nft))
}

// apply runs a transaction: the kernel accepts all rules or none.
func apply(ctx context.Context, rules string) error {
	nft, err := Find()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, nft, "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w: %s", nft, err, firstLine(complaints.String()))
	}
	return nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
