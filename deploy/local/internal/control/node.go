package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/deploy/local/internal/cgroup"
	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/nodeagent"
	"fairlead.dev/deploy/local/internal/proc"
	"fairlead.dev/deploy/local/internal/supervise"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// rebootDelay is the delay before a machine reboots that ended unexpectedly.
const rebootDelay = time.Second

// cgroupTimeout is the maximum time for the processes of an earlier boot to end.
const cgroupTimeout = 10 * time.Second

// node is a machine: the first process of its own pid and network namespaces.
type node struct {
	cluster *cluster
	index   int // from 1
	spec    clusterapi.Node
	failed  chan error // receives a death before the cluster was ready

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{} // of cmd
	link    *network.Link
	wanted  bool // should be running
	paused  bool
	settled bool
	cut     clusterapi.Direction
	boots   int
}

func newNode(c *cluster, index int, spec clusterapi.Node) *node {
	return &node{cluster: c, index: index, spec: spec, failed: make(chan error, 1), cut: clusterapi.CutNone}
}

func (n *node) settle() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settled = true
}

func (n *node) logFile() string {
	return filepath.Join(clusterapi.LogDir(n.cluster.Config.Dir), n.spec.Name+".log")
}

// boot starts the machine.
func (n *node) boot() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.launch()
}

// launch starts the machine; n.mu is held.
func (n *node) launch() error {
	var cgroups *cgroup.Tree
	if n.cluster.Cgroups != nil {
		var err error
		if cgroups, err = n.cluster.Cgroups.Node(n.spec.Name, cgroupTimeout); err != nil {
			return fmt.Errorf("limit %s: %w", n.spec.Name, err)
		}
	}
	raw, err := json.Marshal(nodeagent.Machine{
		Cgroups: cgroups, Config: n.cluster.Config, Node: n.spec, Index: n.index, Shim: n.cluster.Shim, Proxy: n.cluster.proxy,
		UserRange: n.cluster.UserRange,
	})
	if err != nil {
		return err
	}
	out, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open log of %s: %w", n.spec.Name, err)
	}
	defer out.Close()
	plugged, plug, err := os.Pipe()
	if err != nil {
		return err
	}
	defer plug.Close() // a machine that finds it closed without a byte has no network and exits
	cmd := exec.Command(n.cluster.exe, "node-agent")
	cmd.Env = append(childEnv(), nodeagent.Env+"="+string(raw))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = out, out, []*os.File{plugged}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	err = cmd.Start()
	plugged.Close()
	if err != nil {
		return fmt.Errorf("start %s: %w", n.spec.Name, err)
	}
	n.cmd, n.exited, n.wanted, n.paused = cmd, make(chan struct{}), true, false
	n.boots++
	go n.watch(cmd, n.exited)
	if n.link, err = network.Connect(n.index, cmd.Process.Pid); err != nil {
		return fmt.Errorf("connect %s: %w", n.spec.Name, err)
	}
	if err := n.link.Cut(lost[n.cut]); err != nil { // the cable is still out after a reboot
		return fmt.Errorf("cut %s off again: %w", n.spec.Name, err)
	}
	_, err = plug.Write([]byte{1})
	return err
}

// watch waits for the machine's end. After an unexpected end it reboots the machine, like a watchdog.
func (n *node) watch(cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	// The kernel removes the link some time after the namespace; the next boot must not find it.
	network.Disconnect(n.index)
	close(exited)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.wanted || n.cmd != cmd {
		return
	}
	why := supervise.Why(err, n.logFile())
	if !n.settled {
		n.wanted = false
		n.failed <- fmt.Errorf("%s ended while it started: %w", n.spec.Name, why)
		return
	}
	n.cluster.say("%s ended unexpectedly and boots again: %v", n.spec.Name, why)
	time.AfterFunc(rebootDelay, func() { n.again(cmd) })
}

func (n *node) again(old *exec.Cmd) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.wanted || n.cmd != old {
		return
	}
	if err := n.launch(); err != nil { // retry when out of processes
		n.cluster.say("%s does not boot: %v", n.spec.Name, err)
		time.AfterFunc(rebootDelay, func() { n.again(old) })
	}
}

// kill kills the machine with all its processes. It stays down.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
}

// end kills the machine and waits for its end; n.mu is held.
func (n *node) end() {
	n.wanted = false
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill() // no error if it has already ended
	<-n.exited
}

// restart reboots the machine: all its processes are lost, its disk stays.
func (n *node) restart() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end()
	return n.launch()
}

var errDead = errors.New("the node is dead")

// pause stops every process of the machine; resume resumes them.
func (n *node) pause() error { return n.onTree(proc.StopTree, true) }

func (n *node) resume() error { return n.onTree(proc.ResumeTree, false) }

func (n *node) onTree(f func(root int) error, paused bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down() {
		return errDead
	}
	if err := f(n.cmd.Process.Pid); err != nil {
		return err
	}
	n.paused = paused
	return nil
}

// down reports whether the machine has ended, even if it is about to reboot; n.mu is held.
func (n *node) down() bool {
	if !n.wanted {
		return true
	}
	select {
	case <-n.exited:
		return true
	default:
		return false
	}
}

// lost contains the packets that a cut drops.
var lost = map[clusterapi.Direction]network.Direction{
	clusterapi.CutBoth: {In: true, Out: true}, clusterapi.CutInbound: {In: true}, clusterapi.CutOutbound: {Out: true},
	clusterapi.CutNone: {},
}

// setCut drops the packets in one direction, in both, or in none. It lasts over reboots.
func (n *node) setCut(d clusterapi.Direction) error {
	dropped, ok := lost[d]
	if !ok {
		return fmt.Errorf("unknown direction %q: give both, inbound or outbound", d)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down() {
		return errDead
	}
	if err := n.link.Cut(dropped); err != nil {
		return err
	}
	n.cut = d
	return nil
}

func (n *node) status() clusterapi.NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := clusterapi.NodeStatus{Name: n.spec.Name, Address: network.NodeIP(n.index), PodCIDR: network.PodCIDR(n.index),
		State: clusterapi.StateRunning, Cut: n.cut, Boots: n.boots, ServiceProxy: n.cluster.proxy}
	switch {
	case !n.wanted:
		s.State = clusterapi.StateStopped
	case n.down():
		s.State = clusterapi.StateStarting
	case n.paused:
		s.State = clusterapi.StatePaused
	}
	return s
}
