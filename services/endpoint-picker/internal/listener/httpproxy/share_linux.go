package httpproxy

import (
	"context"
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenShared opens a port that other processes of the same user may open, too. joined means that one has it already.
func listenShared(address string) (port *sharedPort, joined bool, err error) {
	l, err := listenWith(address, ruleByAge)
	if errors.Is(err, unix.EADDRINUSE) { // a socket with a rule cannot join others, whose rule stays
		l, err = listenWith(address, reusePort)
		joined = true
	}
	if err != nil {
		return nil, false, err
	}
	return &sharedPort{TCPListener: l.(*net.TCPListener)}, joined, nil
}

func listenWith(address string, control func(network, address string, c syscall.RawConn) error) (net.Listener, error) {
	config := net.ListenConfig{Control: control}
	config.SetMultipathTCP(false) // its sockets have no rules
	return config.Listen(context.Background(), "tcp", address)
}

func reusePort(_, _ string, c syscall.RawConn) error {
	return setOption(c, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
}

// ruleByAge begins with the rule for the oldest socket.
func ruleByAge(network, address string, c syscall.RawConn) error {
	err := reusePort(network, address, c)
	if err == nil {
		_ = setRule(c, oldest) // without it, the kernel chooses
	}
	return err
}

// steerConns changes the rule by which the kernel chooses a socket of a shared port.
func steerConns(l *net.TCPListener, socket uint32) error {
	c, err := l.SyscallConn()
	if err != nil {
		return err
	}
	return setRule(c, socket)
}

// setRule makes a program that returns the number of a socket the rule of all sockets of a port.
func setRule(c syscall.RawConn, socket uint32) error {
	program := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: socket}}
	return setOption(c, func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &program)
	})
}

// setOption calls a function with the descriptor of a socket.
func setOption(c syscall.RawConn, set func(fd int) error) error {
	var refused error
	if err := c.Control(func(fd uintptr) { refused = set(int(fd)) }); err != nil {
		return err
	}
	return refused
}
