// Package cri is a container runtime inside the kubelet's own process: the CRI's Go interfaces, and a socket for questions of
// others. A sandbox is a network namespace, a container is one process tree in its own mount, pid, ipc and uts namespaces, an
// image is a directory of package imagestore. If the machine permits cgroups, each container has its own; pods have none, so there is no
// quality of service.
//
// State is in memory: when the runtime's process ends, so do its containers (they live in its pid namespace), and the next
// one starts empty, like a machine after a reboot.
package cri

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/klog/v2"

	"fairlead.dev/deploy/local/internal/cgroup"
	"fairlead.dev/deploy/local/internal/imagestore"
	"fairlead.dev/deploy/local/internal/network"
)

// streamPort is the port of exec and port-forward streams, on the node's address.
const streamPort = "10350"

// Params are the parameters of New.
type Params struct {
	Images    *imagestore.Store // loaded before the start; clusters share it
	Pulled    *imagestore.Store // pulled by this node
	Dir       string            // state: specs, roots, the address pool
	Shim      string            // the localkube-shim binary
	NodeIP    string
	NodeIndex int
	// UserRange means that the user namespace maps a range of IDs, so containers set their user by setuid. If only one ID is
	// mapped, each container gets a nested user namespace that maps its user to that ID.
	UserRange bool
	// Cgroups is the node's cgroup, the parent of the containers' cgroups. Without one nothing is limited.
	Cgroups *cgroup.Tree
	// InsecureRegistries are host:port of registries that may serve images in plain HTTP.
	InsecureRegistries []string
}

// Runtime implements RuntimeService and ImageManagerService of k8s.io/cri-api.
type Runtime struct {
	Params
	addresses *network.AddressPool
	stream    streaming.Server

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
}

// sandbox is one pod. Only ready and net change; the Runtime's lock guards them.
type sandbox struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	created int64 // ns since 1970, like all times here
	net     *network.Pod
	ip      net.IP
	hostNet bool
	ready   bool
}

// container is one container; the Runtime's lock guards fields that change.
type container struct {
	id, sandbox  string
	dir, logPath string
	config       *runtimeapi.ContainerConfig
	image        *imagestore.Image
	cgroup       *cgroup.Tree // nil without limits
	created      int64

	state          runtimeapi.ContainerState
	started, ended int64
	exitCode       int32
	reason         string
	cmd            *exec.Cmd
	log            *logFile
	done           chan struct{} // closed when it has exited and its log is complete
}

// New returns a runtime and starts its stream server.
func New(p Params) (*Runtime, error) {
	if err := os.RemoveAll(filepath.Join(p.Dir, "containers")); err != nil { // remains of an earlier boot
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(p.Dir, "containers"), 0o755); err != nil {
		return nil, err
	}
	pool, err := network.OpenAddressPool(p.NodeIndex, filepath.Join(p.Dir, "last-pod-address"))
	if err != nil {
		return nil, err
	}
	r := &Runtime{Params: p, addresses: pool, sandboxes: map[string]*sandbox{}, containers: map[string]*container{}}
	cfg := streaming.DefaultConfig
	cfg.Addr = net.JoinHostPort(p.NodeIP, streamPort)
	if r.stream, err = streaming.NewServer(cfg, streamer{r}); err != nil {
		return nil, fmt.Errorf("make stream server: %w", err)
	}
	go func() {
		if err := r.stream.Start(true); err != nil {
			klog.ErrorS(err, "Stream server ended")
		}
	}()
	return r, nil
}

func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Version returns the version for the kubelet.
func (r *Runtime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "localkube", RuntimeVersion: "0.1.0", RuntimeApiVersion: "v1"}, nil
}

// Status is always ready: there is no separate engine that could fail.
func (r *Runtime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

func (r *Runtime) container(id string) (*container, *sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, nil, status.Errorf(codes.NotFound, "no container %s", id)
	}
	return c, r.sandboxes[c.sandbox], nil
}

// matches reports whether an object has all labels of a filter.
func matches(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}
