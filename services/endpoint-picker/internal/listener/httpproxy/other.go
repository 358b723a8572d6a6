//go:build !linux

package httpproxy

import (
	"errors"
	"net"
)

// Systems that the picker is only developed on lack the following.

// closedByPeer reports nothing.
func closedByPeer(net.Conn) bool { return false }

// listenShared opens a port that no other process can open.
func listenShared(address string) (port *sharedPort, joined bool, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, false, err
	}
	return &sharedPort{TCPListener: l.(*net.TCPListener)}, false, nil
}

// steerConns steers nothing.
func steerConns(*net.TCPListener, uint32) error { return errors.ErrUnsupported }
