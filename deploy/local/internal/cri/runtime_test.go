package cri

import (
	"archive/tar"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/imagestore"
	"fairlead.dev/deploy/local/internal/imagestore/imagetest"
	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/pkg/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(nstest.Exit)) }

const (
	tick = 5 * time.Millisecond
	// probeImage runs the probe.
	probeImage = "local/probe:v1"
	passwd     = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
)

// node is a machine with a container runtime; its own process is the first, as a kubelet's is.
type node struct {
	*Runtime
	image *imagestore.Image
}

// pod is a sandbox that runs.
type pod struct {
	id     string
	config *runtimeapi.PodSandboxConfig
}

// onNode runs f as root of namespaces of its own.
func onNode(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	shim, probe := nstest.Program(t, nstest.Shim), nstest.Program(t, nstest.Probe)
	nstest.Inside(t, func(t *testing.T) { f(t, newNode(t, shim, probe)) })
}

// onNodeWithOneID is onNode as it is for anybody but root.
func onNodeWithOneID(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	shim, probe := nstest.Program(t, nstest.Shim), nstest.Program(t, nstest.Probe)
	nstest.InsideWithOneID(t, func(t *testing.T) { f(t, newNode(t, shim, probe)) })
}

func newNode(t *testing.T, shim, probe string) *node {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, netlink.LinkSetUp(lo))
	require.NoError(t, netlink.AddrAdd(lo, nodeAddress(t)))
	store := imagestore.Open(t.TempDir())
	program, err := os.ReadFile(probe)
	require.NoError(t, err)
	layer := imagetest.Layer(t, imagetest.File("probe", string(program), 0o755), imagetest.File("etc/passwd", passwd, 0o644),
		imagetest.File("etc/group", "nonroot:x:65532:\nstaff:x:50:nonroot,other\n", 0o644),
		imagetest.Entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}})
	img, err := store.LoadLayout(imagetest.Layout(t, imagetest.Image(t, v1.Config{Entrypoint: []string{"/probe"}, User: "65532",
		Env: []string{"FROM=image", "IMAGE=yes"}}, layer)), probeImage)
	require.NoError(t, err)
	n := &node{image: img}
	n.boot(t, Params{Images: store, Pulled: imagestore.Open(t.TempDir()), Dir: t.TempDir(), Shim: shim, NodeIP: network.NodeIP(1), NodeIndex: 1, UserRange: nstest.UserRange(t)})
	return n
}

// nodeAddress is what routes to pods come from.
func nodeAddress(t *testing.T) *netlink.Addr {
	t.Helper()
	addr, err := netlink.ParseAddr(network.NodeIP(1) + "/32")
	require.NoError(t, err)
	return addr
}

// boot starts a runtime, which ends with the test.
func (n *node) boot(t *testing.T, p Params) {
	t.Helper()
	r, err := New(p)
	require.NoError(t, err)
	n.Runtime = r
	t.Cleanup(func() { shutDown(t, r) })
}

func shutDown(t *testing.T, r *Runtime) {
	t.Helper()
	ctx := context.Background() // the test's own has ended
	pods, err := r.ListPodSandbox(ctx, nil)
	require.NoError(t, err)
	for _, p := range pods {
		require.NoError(t, r.RemovePodSandbox(ctx, p.Id))
	}
	require.NoError(t, r.stream.Stop())
}

// podConfig is a pod as the kubelet describes it.
func podConfig(t *testing.T, name string) *runtimeapi.PodSandboxConfig {
	t.Helper()
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name + "-uid"}, Hostname: name,
		LogDirectory: filepath.Join(t.TempDir(), "logs", name), Labels: map[string]string{"app": name, "tier": "test"},
		Annotations: map[string]string{"note": "of " + name},
		DnsConfig:   &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Searches: []string{"svc.cluster.local"}},
	}
}

func (n *node) runPod(t *testing.T, name string) *pod {
	t.Helper()
	p := &pod{config: podConfig(t, name)}
	var err error
	p.id, err = n.RunPodSandbox(t.Context(), p.config, "")
	require.NoError(t, err)
	return p
}

// containerConfig is a container in which the probe does what args say.
func containerConfig(name string, args ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: probeImage, UserSpecifiedImage: probeImage},
		Args: args, LogPath: name + "/0.log", Labels: map[string]string{"container": name, "tier": "test"}, Annotations: map[string]string{"note": "of " + name},
	}
}

func (n *node) create(t *testing.T, p *pod, cfg *runtimeapi.ContainerConfig) string {
	t.Helper()
	id, err := n.CreateContainer(t.Context(), p.id, cfg, p.config)
	require.NoError(t, err)
	return id
}

// start creates and starts a container.
func (n *node) start(t *testing.T, p *pod, cfg *runtimeapi.ContainerConfig) string {
	t.Helper()
	id := n.create(t, p, cfg)
	require.NoError(t, n.StartContainer(t.Context(), id))
	return id
}

// startWaiting starts a container whose program waits for a signal, and returns once it does.
func (n *node) startWaiting(t *testing.T, p *pod, name string) string {
	t.Helper()
	id := n.start(t, p, containerConfig(name, "wait"))
	n.awaitLog(t, id, "stdout F waiting")
	return id
}

// finish runs a container to its end and returns its log.
func (n *node) finish(t *testing.T, p *pod, cfg *runtimeapi.ContainerConfig) []string {
	t.Helper()
	id := n.start(t, p, cfg)
	n.awaitEnd(t, id)
	return entries(t, n.status(t, id).LogPath)
}

func (n *node) status(t require.TestingT, id string) *runtimeapi.ContainerStatus {
	resp, err := n.ContainerStatus(context.Background(), id, false)
	require.NoError(t, err)
	return resp.Status
}

func (n *node) awaitEnd(t *testing.T, id string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, runtimeapi.ContainerState_CONTAINER_EXITED, n.status(collect, id).State)
	}, kubetest.Patience, tick)
}

func (n *node) awaitLog(t *testing.T, id, line string) {
	t.Helper()
	file := n.status(t, id).LogPath
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		raw, err := os.ReadFile(file)
		require.NoError(collect, err)
		assert.Contains(collect, string(raw), line)
	}, kubetest.Patience, tick)
}

// address is a pod's.
func (n *node) address(t *testing.T, p *pod) string {
	t.Helper()
	resp, err := n.PodSandboxStatus(t.Context(), p.id, false)
	require.NoError(t, err)
	return resp.Status.Network.GetIp()
}

func TestNew_StartsWithNothingAfterAReboot(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		n.start(t, p, containerConfig("app", "print", "up"))
		require.Equal(t, "10.244.1.2", n.address(t, p))
		shutDown(t, n.Runtime)
		left := filepath.Join(n.Dir, "containers", "left", "spec.json")
		require.NoError(t, os.MkdirAll(filepath.Dir(left), 0o755))
		require.NoError(t, os.WriteFile(left, nil, 0o600))

		n.boot(t, n.Params)
		assert.NoFileExists(t, left)
		pods, err := n.ListPodSandbox(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, pods)
		containers, err := n.ListContainers(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, containers)
		assert.Equal(t, "10.244.1.3", n.address(t, n.runPod(t, "web")), "the old address comes last")
	})
}

func TestRuntime_IsReadyAndSaysWhatItIs(t *testing.T) {
	t.Parallel()
	r := &Runtime{}
	v, err := r.Version(t.Context(), "v1")
	require.NoError(t, err)
	assert.Equal(t, "localkube", v.RuntimeName)
	assert.Equal(t, "v1", v.RuntimeApiVersion)
	s, err := r.Status(t.Context(), false)
	require.NoError(t, err)
	for _, kind := range []string{runtimeapi.RuntimeReady, runtimeapi.NetworkReady} {
		assert.Contains(t, s.Status.Conditions, &runtimeapi.RuntimeCondition{Type: kind, Status: true})
	}
}

func TestRuntime_UnknownIDs(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		ctx := t.Context()
		asked := map[string]func() error{
			"sandbox status": func() error { _, err := n.PodSandboxStatus(ctx, "x", false); return err },
			"create container": func() error {
				_, err := n.CreateContainer(ctx, "x", containerConfig("app"), podConfig(t, "web"))
				return err
			},
			"start container":     func() error { return n.StartContainer(ctx, "x") },
			"container status":    func() error { _, err := n.ContainerStatus(ctx, "x", false); return err },
			"container stats":     func() error { _, err := n.ContainerStats(ctx, "x"); return err },
			"exec":                func() error { _, _, err := n.ExecSync(ctx, "x", []string{"/probe"}, 0); return err },
			"reopen log":          func() error { return n.ReopenContainerLog(ctx, "x") },
			"forward port stream": func() error { return streamer{n.Runtime}.PortForward(ctx, "x", 80, nil) },
		}
		for name, ask := range asked {
			assert.Equal(t, codes.NotFound, status.Code(ask()), name)
		}
		ended := map[string]func() error{
			"stop sandbox":     func() error { return n.StopPodSandbox(ctx, "x") },
			"remove sandbox":   func() error { return n.RemovePodSandbox(ctx, "x") },
			"stop container":   func() error { return n.StopContainer(ctx, "x", 30) },
			"remove container": func() error { return n.RemoveContainer(ctx, "x") },
		}
		for name, end := range ended {
			require.NoError(t, end(), "%s: the interface wants it so", name)
		}
	})
}
