package cri

import (
	"context"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/network"
)

// RunPodSandbox creates a pod's network namespace.
func (r *Runtime) RunPodSandbox(_ context.Context, cfg *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	s := &sandbox{id: newID(), config: cfg, created: time.Now().UnixNano(), ready: true}
	s.hostNet = cfg.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if err := os.MkdirAll(cfg.LogDirectory, 0o755); err != nil {
		return "", err
	}
	if s.hostNet {
		s.ip = net.ParseIP(r.NodeIP)
	} else if err := r.plug(s); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes[s.id] = s
	return s.id, nil
}

func (r *Runtime) plug(s *sandbox) error {
	ip, err := r.addresses.Take()
	if err != nil {
		return err
	}
	if s.net, err = network.NewPod(r.NodeIndex, ip, s.id); err != nil {
		r.addresses.Give(ip)
		return err
	}
	s.ip = ip
	return nil
}

// StopPodSandbox kills the pod's containers (the kubelet has already waited for their grace period) and removes its network.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	for _, c := range r.running(id) {
		if err := r.StopContainer(ctx, c, 0); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil
	}
	s.ready = false
	if s.net != nil {
		s.net.Close()
		s.net = nil
		r.addresses.Give(s.ip)
	}
	return nil
}

// within runs f in the sandbox's network. A stopped sandbox has none, and f must not use the node's instead.
func (r *Runtime) within(s *sandbox, f func() error) error {
	r.mu.Lock()
	ready, pod := s.ready, s.net
	r.mu.Unlock()
	switch {
	case !ready:
		return status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", s.id)
	case pod == nil: // it uses the node's network
		return f()
	default:
		return pod.Do(f)
	}
}

func (r *Runtime) running(sandbox string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for _, c := range r.containers {
		if c.sandbox == sandbox && c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			ids = append(ids, c.id)
		}
	}
	return ids
}

// RemovePodSandbox removes a pod and its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for cid, c := range r.containers {
		if c.sandbox == id {
			_ = os.RemoveAll(c.dir)
			delete(r.containers, cid)
		}
	}
	delete(r.sandboxes, id)
	return nil
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// PodSandboxStatus describes one pod.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %s", id)
	}
	st := &runtimeapi.PodSandboxStatus{Id: id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created,
		Labels: s.config.Labels, Annotations: s.config.Annotations,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}}}
	if !s.hostNet { // for a pod on the host's network the kubelet uses the node's address
		st.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip.String()}
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: st}, nil
}

// ListPodSandbox lists pods.
func (r *Runtime) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.PodSandbox
	for _, s := range r.sandboxes {
		if f.GetId() != "" && f.GetId() != s.id || f.GetState() != nil && f.GetState().State != s.state() ||
			!matches(s.config.Labels, f.GetLabelSelector()) {
			continue
		}
		out = append(out, &runtimeapi.PodSandbox{Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created,
			Labels: s.config.Labels, Annotations: s.config.Annotations})
	}
	return out, nil
}
