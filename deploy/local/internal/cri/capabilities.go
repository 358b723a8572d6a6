package cri

import (
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	allCapabilities = "ALL"
	everyCapability = ^uint64(0)
)

// capabilityNames are the names in capabilities(7), by number.
var capabilityNames = []string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE",
	"NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT",
	"SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE",
	"AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
	"PERFMON", "BPF", "CHECKPOINT_RESTORE",
}

// defaultCapabilities are containerd's fourteen default capabilities.
const defaultCapabilities uint64 = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FSETID | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_MKNOD | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETFCAP | 1<<unix.CAP_SETPCAP |
	1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_CHROOT | 1<<unix.CAP_KILL | 1<<unix.CAP_AUDIT_WRITE

// capabilities returns the capabilities of a container's processes, one bit each, within the cluster's user namespace.
func capabilities(sc *runtimeapi.LinuxContainerSecurityContext) (uint64, error) {
	if sc.GetPrivileged() {
		return everyCapability, nil
	}
	set := defaultCapabilities
	add, drop := sc.GetCapabilities().GetAddCapabilities(), sc.GetCapabilities().GetDropCapabilities()
	if contains(drop, allCapabilities) { // capabilities that are added by name stay
		set = 0
	}
	if contains(add, allCapabilities) {
		set = everyCapability
	}
	for _, name := range add {
		bit, err := capability(name)
		if err != nil {
			return 0, err
		}
		set |= bit
	}
	for _, name := range drop {
		bit, err := capability(name)
		if err != nil {
			return 0, err
		}
		set &^= bit
	}
	return set, nil
}

// capability returns the bit of a name; ALL has none.
func capability(name string) (uint64, error) {
	name = strings.TrimPrefix(strings.ToUpper(name), "CAP_")
	if name == allCapabilities {
		return 0, nil
	}
	for i, known := range capabilityNames {
		if name == known {
			return 1 << i, nil
		}
	}
	return 0, status.Errorf(codes.InvalidArgument, "unknown capability %s", name)
}

func contains(names []string, want string) bool {
	for _, name := range names {
		if strings.TrimPrefix(strings.ToUpper(name), "CAP_") == want {
			return true
		}
	}
	return false
}
