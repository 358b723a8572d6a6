// Package shim runs between the container runtime and a container's program. The runtime writes a Spec to a file and starts
// the localkube-shim binary in new mount, pid, ipc and uts namespaces. The shim builds the root file system, pivots into it,
// drops privileges and execs the program, which becomes process 1. It also joins a running container for kubectl exec, exec
// probes and hooks.
//
// It imports only the standard library and x/sys. The shim is a separate binary so that a container starts in milliseconds,
// which the init functions of the Kubernetes packages would prevent.
package shim

import (
	"encoding/json"
	"fmt"
	"os"
)

// Mount binds Source, outside, to Target, inside the new root.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Spec describes one container's root and program.
type Spec struct {
	Root     string            // empty directory, the mount point of the container's file system
	Image    string            // directory with the files of the image, which stays unchanged
	Files    map[string]string // small files written into the root, by path
	Mounts   []Mount
	Cgroups  map[string]string // cgroups of the program, which it sees read-only, by path
	Args     []string
	Env      []string
	Cwd      string
	Hostname string
	UID, GID int
	Groups   []int
	// SetUser calls setgid and setuid; only if the cluster's user namespace maps a range of IDs.
	SetUser      bool
	ReadOnlyRoot bool
	Capabilities uint64   // one bit each: the allowed capabilities of the program, which it has as root
	NoNewPrivs   bool     // not even by set-user-ID programs
	Masked       []string // paths that are empty for the program
	ReadOnly     []string // paths that are read-only for the program

	old string // path of the machine's root during the build
}

// Write writes the spec to file. Only the owner can read it, because it contains the container's environment.
func (s *Spec) Write(file string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	return os.WriteFile(file, raw, 0o600)
}

// Read loads a spec written by Write.
func Read(file string) (*Spec, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var s Spec
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("decode spec %s: %w", file, err)
	}
	return &s, nil
}
