package network

import (
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"fairlead.dev/deploy/local/internal/nstest"
	"fairlead.dev/pkg/kubetest"
)

// machineEnv makes the test binary a process that does nothing until its input ends: the first of a node.
const machineEnv = "NETWORK_TEST_MACHINE"

func TestMain(m *testing.M) {
	if os.Getenv(machineEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(nstest.Exit))
}

// machine is a node: a process in a network namespace of its own.
type machine struct {
	index int
	cmd   *exec.Cmd
	input io.WriteCloser
	ns    netns.NsHandle
	link  *Link
}

// place is where a test's sockets are opened: on the control plane, on a node or in a pod.
type place func(f func() error) error

func control(f func() error) error { return f() }

// startMachine starts a process in a network namespace of its own.
func startMachine(t *testing.T, index int) *machine {
	t.Helper()
	m := &machine{index: index, cmd: exec.Command("/proc/self/exe")}
	m.cmd.Env = append(os.Environ(), machineEnv+"=1")
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	var err error
	m.input, err = m.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, m.cmd.Start())
	m.ns, err = netns.GetFromPid(m.cmd.Process.Pid)
	require.NoError(t, err)
	t.Cleanup(func() { m.end(t) })
	return m
}

// startNode starts a node and joins it to the control plane.
func startNode(t *testing.T, index int) *machine {
	t.Helper()
	m := startMachine(t, index)
	var err error
	m.link, err = Connect(index, m.cmd.Process.Pid)
	require.NoError(t, err)
	require.NoError(t, m.do(func() error { return SetupNode(index, ServiceCIDR) }))
	return m
}

// end ends the machine's process; its network goes with it.
func (m *machine) end(t *testing.T) {
	t.Helper()
	if m.cmd.ProcessState != nil {
		return
	}
	require.NoError(t, m.ns.Close())
	require.NoError(t, m.input.Close())
	require.NoError(t, m.cmd.Wait())
}

// do runs f on a thread inside the machine's network namespace.
func (m *machine) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := netns.Set(m.ns); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// newPod makes a pod on the machine.
func (m *machine) newPod(t *testing.T, last byte, id string) *Pod {
	t.Helper()
	var p *Pod
	require.NoError(t, m.do(func() (err error) {
		p, err = NewPod(m.index, net.IPv4(10, 244, byte(m.index), last), id)
		return err
	}))
	t.Cleanup(func() { assert.NoError(t, m.do(func() error { p.Close(); return nil })) })
	return p
}

// links lists the machine's links.
func (m *machine) links(t *testing.T) []string {
	t.Helper()
	var names []string
	require.NoError(t, m.do(func() error {
		l, err := here()
		if err != nil {
			return err
		}
		defer l.h.Close()
		names, err = linkNames(l.h)
		return err
	}))
	return names
}

func linkNames(h *netlink.Handle) ([]string, error) {
	list, err := h.LinkList()
	var names []string
	for _, l := range list {
		names = append(names, l.Attrs().Name)
	}
	return names, err
}

// serve answers each TCP connection with the address that it comes from.
func serve(t *testing.T, at place, addr string) string {
	t.Helper()
	var ln net.Listener
	require.NoError(t, at(func() (err error) {
		ln, err = net.Listen("tcp4", addr)
		return err
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			_, _ = io.WriteString(c, host) // the client looks
			c.Close()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
	})
	return ln.Addr().String()
}

// ask connects and returns what the server says.
func ask(t *testing.T, at place, addr string) string {
	t.Helper()
	var c net.Conn
	require.NoError(t, at(func() (err error) {
		c, err = net.DialTimeout("tcp4", addr, kubetest.Patience)
		return err
	}), addr)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(kubetest.Patience)))
	raw, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(raw)
}

func TestNetwork_EverybodyReachesEverybodyUnderHisOwnAddress(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		one, two := startNode(t, 1), startNode(t, 64)
		podOne, otherOne, podTwo := one.newPod(t, 2, "0123456789abcdef"), one.newPod(t, 254, "fedcba9876543210"), two.newPod(t, 2, "0123456789abcdef")
		places := []struct {
			name string
			at   place
			ip   string
		}{
			{name: "control plane", at: control, ip: ControlIP},
			{name: "node 1", at: one.do, ip: "10.200.0.11"},
			{name: "node 64", at: two.do, ip: "10.200.0.74"},
			{name: "pod on node 1", at: podOne.Do, ip: "10.244.1.2"},
			{name: "other pod on node 1", at: otherOne.Do, ip: "10.244.1.254"},
			{name: "pod on node 64", at: podTwo.Do, ip: "10.244.64.2"},
		}
		for _, to := range places {
			serve(t, to.at, ":80")
			for _, from := range places {
				assert.Equal(t, from.ip, ask(t, from.at, net.JoinHostPort(to.ip, "80")), "from %s to %s", from.name, to.name)
			}
		}
	})
}

func TestNetwork_ServiceAddressesAreLocalOnNodesAndControlPlane(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		node := startNode(t, 1)
		for name, at := range map[string]place{"control plane": control, "node": node.do} {
			for _, ip := range []string{APIService, ClusterDNS, "10.96.255.254"} {
				addr := serve(t, at, net.JoinHostPort(ip, "443"))
				assert.Equal(t, ip, ask(t, at, addr), name)
			}
		}
		pod := node.newPod(t, 2, "a")
		serve(t, node.do, "10.96.7.7:443")
		assert.Equal(t, "10.244.1.2", ask(t, pod.Do, "10.96.7.7:443"), "the node answers for its pods")
		for _, ip := range []string{"10.96.7.7", "10.97.0.1"} {
			err := pod.Do(func() error {
				ln, err := net.Listen("tcp4", net.JoinHostPort(ip, "443"))
				if err == nil {
					ln.Close()
				}
				return err
			})
			require.ErrorIs(t, err, unix.EADDRNOTAVAIL, "%s is not the pod's", ip)
		}
	})
}

func TestNetwork_NeighboursArePermanent(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		node := startNode(t, 1)
		pod := node.newPod(t, 2, "a")
		serve(t, pod.Do, ":80")
		serve(t, control, ControlIP+":80")
		ask(t, control, "10.244.1.2:80")
		ask(t, pod.Do, ControlIP+":80")
		for name, at := range map[string]place{"control plane": control, "node": node.do, "pod": pod.Do} {
			var list []netlink.Neigh
			require.NoError(t, at(func() (err error) {
				list, err = netlink.NeighList(0, netlink.FAMILY_V4)
				return err
			}))
			assert.NotEmpty(t, list, name)
			for _, n := range list {
				if n.State&netlink.NUD_NOARP == 0 { // those of loopback are nobody's
					assert.Equal(t, netlink.NUD_PERMANENT, n.State, "%s: %s", name, n.IP)
				}
			}
		}
	})
}

// listenUDP opens a socket that does not wait for ever.
func listenUDP(t *testing.T, at place, ip string) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	require.NoError(t, at(func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(ip), Port: 9000})
		return err
	}))
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(kubetest.Patience)))
	return c
}

// received lists what comes up to and without last.
func received(t *testing.T, c *net.UDPConn, last string) []string {
	t.Helper()
	list, buf := []string{}, make([]byte, 100)
	for {
		n, err := c.Read(buf)
		require.NoError(t, err, "after %q, waiting for %q", list, last)
		if string(buf[:n]) == last {
			return list
		}
		list = append(list, string(buf[:n]))
	}
}

func TestCut_LosesExactlyThePacketsOfItsDirections(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		node, other := startNode(t, 1), startNode(t, 2)
		pod, far := node.newPod(t, 2, "a"), other.newPod(t, 2, "a")
		atControl, atPod := listenUDP(t, control, ControlIP), listenUDP(t, pod.Do, "10.244.1.2")
		atNode, atFar := listenUDP(t, node.do, "10.200.0.11"), listenUDP(t, far.Do, "10.244.2.2")
		send := func(from, to *net.UDPConn, text string) {
			_, err := from.WriteTo([]byte(text), to.LocalAddr())
			require.NoError(t, err, "a cut is silent")
		}
		everywhere := func(text string) {
			send(atControl, atNode, text+" to node")
			send(atFar, atPod, text+" to pod")
			send(atNode, atControl, text+" to control plane")
			send(atPod, atFar, text+" to far pod")
		}
		tests := []struct {
			name    string
			give    Direction
			in, out bool // what passes
		}{
			{name: "nothing", give: Direction{}, in: true, out: true},
			{name: "inbound", give: Direction{In: true}, out: true},
			{name: "outbound", give: Direction{Out: true}, in: true},
			{name: "both", give: Direction{In: true, Out: true}},
			{name: "healed", give: Direction{}, in: true, out: true},
		}
		for i, tt := range tests {
			during, after := strconv.Itoa(i), strconv.Itoa(i)+" healed"
			require.NoError(t, node.link.Cut(tt.give))
			everywhere(during)
			// A link keeps the order of packets: what is not there before the first of afterwards was lost.
			require.NoError(t, node.link.Cut(Direction{}))
			everywhere(after)
			for _, r := range []struct {
				at     *net.UDPConn
				who    string
				passes bool
			}{{atNode, " to node", tt.in}, {atPod, " to pod", tt.in}, {atControl, " to control plane", tt.out}, {atFar, " to far pod", tt.out}} {
				want := []string{}
				if r.passes {
					want = append(want, during+r.who)
				}
				assert.Equal(t, want, received(t, r.at, after+r.who), tt.name)
			}
		}
	})
}

func TestCut_LeavesOtherNodesAlone(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		cut, other := startNode(t, 1), startNode(t, 2)
		require.NoError(t, cut.link.Cut(Direction{In: true, Out: true}))
		serve(t, other.do, ":80")
		assert.Equal(t, ControlIP, ask(t, control, "10.200.0.12:80"))
		pod := cut.newPod(t, 2, "a")
		serve(t, pod.Do, ":80")
		assert.Equal(t, "10.200.0.11", ask(t, cut.do, "10.244.1.2:80"), "a node that is cut off still reaches its own pods")
	})
}

func TestCut_OfANodeThatHasEndedIsAnError(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		node := startNode(t, 1)
		node.end(t)
		Disconnect(1)
		require.ErrorContains(t, node.link.Cut(Direction{In: true}), "find link node-1")
	})
}

// Who sends first must not meet a link that still wakes up: a lost SYN is sent again after a second.
func TestNetwork_PassesTheFirstPacket(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		atControl := listenUDP(t, control, ControlIP)
		send := func(to *net.UDPConn) {
			_, err := atControl.WriteTo([]byte("first"), to.LocalAddr())
			require.NoError(t, err)
			_, err = atControl.WriteTo([]byte("second"), to.LocalAddr())
			require.NoError(t, err)
		}
		for i := 1; i <= 10; i++ {
			node := startNode(t, i)
			atNode := listenUDP(t, node.do, NodeIP(i))
			send(atNode)
			assert.Equal(t, []string{"first"}, received(t, atNode, "second"), "node %d", i)
			for last := byte(2); last < 12; last++ {
				pod := node.newPod(t, last, strconv.Itoa(int(last)))
				atPod := listenUDP(t, pod.Do, pod.IP.String())
				send(atPod)
				assert.Equal(t, []string{"first"}, received(t, atPod, "second"), "pod %s", pod.IP)
			}
		}
	})
}

func TestPod_CloseFreesLinkAndAddress(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		node := startNode(t, 1)
		pod := node.newPod(t, 2, "0123456789abcdef")
		require.Contains(t, node.links(t), "pod-0123456789")
		require.NoError(t, node.do(func() error { pod.Close(); return nil }))
		assert.NotContains(t, node.links(t), "pod-0123456789")
		require.ErrorContains(t, pod.Do(func() error { return nil }), "enter network namespace of pod")

		again := node.newPod(t, 2, "0123456789abcdef")
		serve(t, again.Do, ":80")
		assert.Equal(t, ControlIP, ask(t, control, "10.244.1.2:80"))
	})
}

func TestPod_ThatCannotBeMadeLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		node := startNode(t, 1)
		pod := node.newPod(t, 2, "0123456789abcdef")
		serve(t, pod.Do, ":80")
		before := openFiles(t)
		err := node.do(func() error {
			_, err := NewPod(1, net.IPv4(10, 244, 1, 3), "0123456789xyz")
			return err
		})
		require.ErrorContains(t, err, "add link to pod: ")
		assert.Equal(t, before, openFiles(t), "its network namespace is not kept")
		assert.Equal(t, ControlIP, ask(t, control, "10.244.1.2:80"))
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestPod_AnyUserMayListenOnLowPorts(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		pod := startNode(t, 1).newPod(t, 2, "a")
		require.NoError(t, pod.Do(func() error {
			raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
			assert.Equal(t, "0\n", string(raw))
			return err
		}))
	})
}

func TestPod_DoPassesErrorsAndComesBack(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		node := startNode(t, 1)
		pod := node.newPod(t, 2, "a")
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before, err := netns.Get()
		require.NoError(t, err)
		defer before.Close()
		require.ErrorIs(t, pod.Do(func() error {
			inside, err := netns.Get()
			if err == nil {
				defer inside.Close()
				assert.False(t, before.Equal(inside))
			}
			return io.ErrUnexpectedEOF
		}), io.ErrUnexpectedEOF)
		after, err := netns.Get()
		require.NoError(t, err)
		defer after.Close()
		assert.True(t, before.Equal(after))
	})
}

func TestDisconnect_MakesRoomForTheNextBoot(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		Disconnect(1) // nothing to do
		first := startNode(t, 1)
		second := startMachine(t, 1)
		_, err := Connect(1, second.cmd.Process.Pid)
		require.ErrorContains(t, err, "add link to node: ", "the first one's is still there")

		Disconnect(1)
		assert.NotContains(t, first.links(t), "eth0")
		second.link, err = Connect(1, second.cmd.Process.Pid)
		require.NoError(t, err)
		require.NoError(t, second.do(func() error { return SetupNode(1, ServiceCIDR) }))
		serve(t, second.do, ":80")
		assert.Equal(t, ControlIP, ask(t, control, "10.200.0.11:80"))
	})
}

func TestConnect_LinkGoesWithItsNode(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.NoError(t, SetupControl())
		node := startNode(t, 1)
		l, err := here()
		require.NoError(t, err)
		defer l.h.Close()
		names, err := linkNames(l.h)
		require.NoError(t, err)
		require.Contains(t, names, "node-1")
		node.end(t)
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			names, err := linkNames(l.h)
			require.NoError(collect, err)
			assert.NotContains(collect, names, "node-1")
		}, kubetest.Patience, 10*time.Millisecond)
	})
}

func TestSetup_OutsideOfItsPlaceIsAnError(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		require.ErrorContains(t, SetupNode(1, ServiceCIDR), "find link eth0", "nobody has connected it")
		require.NoError(t, SetupControl())
		require.ErrorContains(t, SetupControl(), "add 10.200.0.1 to lo")
		_, err := Connect(1, 1<<30)
		require.ErrorContains(t, err, "add link to node: ")
	})
}
