//go:build !linux

package peers

import (
	"net"
	"time"
)

func setUserTimeout(net.Conn, time.Duration) {}
