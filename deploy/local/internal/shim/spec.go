// Package shim is what happens between the container runtime and a container's program. The runtime writes a Spec to a
// file and starts the localkube-shim binary in new mount, pid, ipc and uts namespaces; the shim builds the root file
// system, pivots into it, drops privileges and execs the program, which so becomes process 1. It also joins a running
// container for kubectl exec, exec probes and hooks.
//
// It imports the standard library and x/sys only: the shim is a binary of its own so that a container starts in
// milliseconds, which the inits of the Kubernetes packages would not allow.
package shim

import (
	"encoding/json"
	"fmt"
	"os"
)

// Mount binds Source, outside, on Target, inside the new root.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Spec describes one container's root and program.
type Spec struct {
	Root     string            // empty directory, on which the container's file system is mounted
	Image    string            // directory with the files of the image, which stays as it is
	Files    map[string]string // small files written into the root, by path
	Mounts   []Mount
	Cgroups  map[string]string // cgroups that the program is in, and sees read-only, by path
	Args     []string
	Env      []string
	Cwd      string
	Hostname string
	UID, GID int
	Groups   []int
	// SetUser calls setgid and setuid; only where the cluster's user namespace maps a range of ids.
	SetUser      bool
	ReadOnlyRoot bool
	Capabilities uint64   // one bit each: what the program may have; as root it has them
	NoNewPrivs   bool     // not even by set-user-ID programs
	Masked       []string // paths that the program finds empty
	ReadOnly     []string // paths that it cannot write to

	old string // where the machine is while the root is built
}

// Write stores the spec in file, readable by its owner only: it holds the container's environment.
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
