package cri

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/pkg/kubetest"
)

// links lists the node's links to pods.
func links(t *testing.T) []string {
	t.Helper()
	list, err := netlink.LinkList()
	require.NoError(t, err)
	var names []string
	for _, l := range list {
		if strings.HasPrefix(l.Attrs().Name, "pod-") {
			names = append(names, l.Attrs().Name)
		}
	}
	return names
}

// leaveAddresses takes all pod addresses but the last few, so that the next ones are known.
func (n *node) leaveAddresses(t *testing.T, left int) {
	t.Helper()
	for range 253 - left {
		_, err := n.addresses.Take()
		require.NoError(t, err)
	}
}

func TestPodSandbox_StatusTellsWhatThePodIs(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		before := time.Now().UnixNano()
		p := n.runPod(t, "web")
		resp, err := n.PodSandboxStatus(t.Context(), p.id, false)
		require.NoError(t, err)
		s := resp.Status
		assert.Equal(t, p.id, s.Id)
		assert.Equal(t, p.config.Metadata, s.Metadata)
		assert.Equal(t, p.config.Labels, s.Labels)
		assert.Equal(t, p.config.Annotations, s.Annotations)
		assert.Equal(t, runtimeapi.PodSandboxState_SANDBOX_READY, s.State)
		assert.Equal(t, "10.244.1.2", s.Network.GetIp())
		assert.GreaterOrEqual(t, s.CreatedAt, before)
		assert.LessOrEqual(t, s.CreatedAt, time.Now().UnixNano())
		assert.DirExists(t, p.config.LogDirectory)

		require.NoError(t, n.StopPodSandbox(t.Context(), p.id))
		resp, err = n.PodSandboxStatus(t.Context(), p.id, false)
		require.NoError(t, err)
		assert.Equal(t, runtimeapi.PodSandboxState_SANDBOX_NOTREADY, resp.Status.State)
	})
}

func TestPodSandbox_OnTheNodesNetworkTakesNoAddress(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := &pod{config: podConfig(t, "agent")}
		options := &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}
		p.config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options}}
		var err error
		p.id, err = n.RunPodSandbox(t.Context(), p.config, "")
		require.NoError(t, err)
		assert.Empty(t, links(t))
		resp, err := n.PodSandboxStatus(t.Context(), p.id, false)
		require.NoError(t, err)
		assert.Nil(t, resp.Status.Network, "the kubelet takes the node's")
		assert.Equal(t, options, resp.Status.Linux.Namespaces.Options)
		assert.Contains(t, strings.Join(n.finish(t, p, containerConfig("app", "cat", "/proc/net/fib_trie")), "\n"), network.NodeIP(1))

		require.NoError(t, n.RemovePodSandbox(t.Context(), p.id))
		assert.Equal(t, "10.244.1.2", n.address(t, n.runPod(t, "web")), "nor gives one back")
	})
}

func TestStopPodSandbox_EndsContainersAndNetwork(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p, other := n.runPod(t, "web"), n.runPod(t, "db")
		one, two := n.startWaiting(t, p, "one"), n.startWaiting(t, p, "two")
		third := n.startWaiting(t, other, "third")
		require.Len(t, links(t), 2)

		require.NoError(t, n.StopPodSandbox(t.Context(), p.id))
		for _, id := range []string{one, two} {
			s := n.status(t, id)
			assert.Equal(t, runtimeapi.ContainerState_CONTAINER_EXITED, s.State)
			assert.Equal(t, int32(137), s.ExitCode, "at once")
		}
		assert.Equal(t, []string{"pod-" + other.id[:10]}, links(t))
		assert.Equal(t, runtimeapi.ContainerState_CONTAINER_RUNNING, n.status(t, third).State)
	})
}

func TestRemovePodSandbox_ForgetsItsContainersAndKeepsTheirLogs(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p, other := n.runPod(t, "web"), n.runPod(t, "db")
		created, running, kept := n.create(t, p, containerConfig("new")), n.startWaiting(t, p, "app"), n.startWaiting(t, other, "third")
		log := n.status(t, running).LogPath

		require.NoError(t, n.RemovePodSandbox(t.Context(), p.id))
		_, err := n.PodSandboxStatus(t.Context(), p.id, false)
		assert.Equal(t, codes.NotFound, status.Code(err))
		for _, id := range []string{created, running} {
			_, err := n.ContainerStatus(t.Context(), id, false)
			assert.Equal(t, codes.NotFound, status.Code(err))
			assert.NoDirExists(t, filepath.Join(n.Dir, "containers", id))
		}
		assert.FileExists(t, log, "the kubelet removes the pod's folder")
		assert.Equal(t, runtimeapi.ContainerState_CONTAINER_RUNNING, n.status(t, kept).State)
	})
}

func TestPodSandbox_StopFreesTheAddressOnce(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		n.leaveAddresses(t, 1)
		p := n.runPod(t, "web")
		require.Equal(t, "10.244.1.254", n.address(t, p))
		_, err := n.RunPodSandbox(t.Context(), podConfig(t, "other"), "")
		require.ErrorIs(t, err, network.ErrNoAddress)

		require.NoError(t, n.StopPodSandbox(t.Context(), p.id))
		next := n.runPod(t, "next")
		assert.Equal(t, "10.244.1.254", n.address(t, next))
		require.NoError(t, n.StopPodSandbox(t.Context(), p.id))
		require.NoError(t, n.RemovePodSandbox(t.Context(), p.id))
		require.NoError(t, n.RemovePodSandbox(t.Context(), p.id))
		_, err = n.RunPodSandbox(t.Context(), podConfig(t, "other"), "")
		require.ErrorIs(t, err, network.ErrNoAddress, "it is the next pod's now")
		assert.Equal(t, []string{"pod-" + next.id[:10]}, links(t))
	})
}

func TestRunPodSandbox_ThatFailsGivesTheAddressBack(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		n.leaveAddresses(t, 1)
		lo, err := netlink.LinkByName("lo")
		require.NoError(t, err)
		require.NoError(t, netlink.AddrDel(lo, nodeAddress(t)))
		_, err = n.RunPodSandbox(t.Context(), podConfig(t, "web"), "")
		require.ErrorContains(t, err, "route 10.244.1.254/32 by pod-")
		assert.Empty(t, links(t))
		pods, err := n.ListPodSandbox(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, pods)

		require.NoError(t, netlink.AddrAdd(lo, nodeAddress(t)))
		assert.Equal(t, "10.244.1.254", n.address(t, n.runPod(t, "web")))
	})
}

func TestListPodSandbox_Filters(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		web, db := n.runPod(t, "web"), n.runPod(t, "db")
		require.NoError(t, n.StopPodSandbox(t.Context(), db.id))
		const ready, notReady = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		tests := []struct {
			name string
			give *runtimeapi.PodSandboxFilter
			want []string
		}{
			{name: "none", want: []string{web.id, db.id}},
			{name: "empty", give: &runtimeapi.PodSandboxFilter{}, want: []string{web.id, db.id}},
			{name: "id", give: &runtimeapi.PodSandboxFilter{Id: web.id}, want: []string{web.id}},
			{name: "ready", give: &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: ready}}, want: []string{web.id}},
			{name: "not ready", give: &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: notReady}}, want: []string{db.id}},
			{name: "label", give: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"app": "db"}}, want: []string{db.id}},
			{name: "label of both", give: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"tier": "test"}}, want: []string{web.id, db.id}},
			{name: "all labels must fit", give: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"tier": "test", "app": "x"}}},
			{name: "id and label", give: &runtimeapi.PodSandboxFilter{Id: web.id, LabelSelector: map[string]string{"app": "db"}}},
		}
		for _, tt := range tests {
			list, err := n.ListPodSandbox(t.Context(), tt.give)
			require.NoError(t, err)
			var got []string
			for _, s := range list {
				got = append(got, s.Id)
			}
			assert.ElementsMatch(t, tt.want, got, tt.name)
		}
	})
}

func TestPortForward_ReachesThePodsLoopback(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		n.serveOnce(t, p, "127.0.0.1:8080")
		near, far := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- streamer{n.Runtime}.PortForward(t.Context(), p.id, 8080, far) }()
		require.NoError(t, near.SetDeadline(time.Now().Add(kubetest.Patience)))
		_, err := io.WriteString(near, "ping")
		require.NoError(t, err)
		answer := make([]byte, len("you: ping"))
		_, err = io.ReadFull(near, answer)
		require.NoError(t, err)
		assert.Equal(t, "you: ping", string(answer))
		require.NoError(t, near.Close())
		require.NoError(t, <-done)

		require.Error(t, streamer{n.Runtime}.PortForward(t.Context(), p.id, 8081, far), "nobody listens there")
	})
}

// A stopped pod has no network, and the node's must not stand in for it.
func TestPortForward_ToAStoppedPodIsRefused(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, n *node) {
		p := n.runPod(t, "web")
		ln, err := net.Listen("tcp4", "127.0.0.1:8080")
		require.NoError(t, err)
		defer ln.Close()
		require.NoError(t, n.StopPodSandbox(t.Context(), p.id))
		near, far := net.Pipe()
		require.NoError(t, near.Close())
		assert.Equal(t, codes.FailedPrecondition, status.Code(streamer{n.Runtime}.PortForward(t.Context(), p.id, 8080, far)))
	})
}

// serveOnce answers one connection in the pod.
func (n *node) serveOnce(t *testing.T, p *pod, addr string) {
	t.Helper()
	var ln net.Listener
	require.NoError(t, n.sandboxes[p.id].net.Do(func() (err error) {
		ln, err = net.Listen("tcp4", addr)
		return err
	}))
	done := make(chan struct{})
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 4)
		if _, err := io.ReadFull(c, buf); err == nil {
			_, _ = io.WriteString(c, "you: "+string(buf)) // the client looks
		}
	}()
}
