package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/kubeproxy"
	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/svcproxy"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// forwardAPI forwards the host's listener to the API server. Connections are reset until the API server answers.
func (c *cluster) forwardAPI() error {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(components.InnerAPI, "https://"))
	if err != nil {
		return err
	}
	return accept(FirstListener, func(conn net.Conn) { svcproxy.Forward(conn, []string{net.JoinHostPort(network.ControlIP, port)}) })
}

// chooseProxy selects the implementation of Services for all nodes, because they share the kernel.
func (c *cluster) chooseProxy(ctx context.Context) error {
	c.proxy = c.Config.ServiceProxy
	if c.proxy == clusterapi.ProxyUserspace || c.Config.ControlPlaneOnly {
		return nil
	}
	err := kubeproxy.Check(ctx)
	switch {
	case err == nil:
		c.proxy = clusterapi.ProxyKube
	case c.proxy == clusterapi.ProxyKube:
		return fmt.Errorf("kube-proxy cannot work here: %w", err)
	default:
		c.proxy = clusterapi.ProxyUserspace
		c.say("a userspace proxy serves Services, because kube-proxy cannot work here: %v", err)
	}
	return nil
}

// serveServices serves service addresses and published ports in the control plane.
func (c *cluster) serveServices(ctx context.Context) error {
	directory, err := svcproxy.NewDirectory(c.client)
	if err != nil {
		return err
	}
	life := context.WithoutCancel(ctx) // ctx ends with the start
	directory.Start(life)
	if err := directory.WaitForSync(ctx); err != nil {
		return err
	}
	proxy := svcproxy.NewProxy(directory, false)
	c.services.Store(proxy)
	go proxy.Run(life)
	go func() {
		if err := svcproxy.NewDNS(directory).Run(life, network.ClusterDNS+":53"); err != nil {
			c.say("DNS is not served to the control plane: %v", err)
		}
	}()
	for i, p := range c.Config.Publish {
		err := accept(FirstListener+1+i, func(conn net.Conn) {
			addrs, err := c.addresses(p.Target)
			if err != nil {
				addrs = nil // no address: the client's connection is reset
			}
			svcproxy.Forward(conn, addrs)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addresses resolves service.namespace:port, node:port or ip:port.
func (c *cluster) addresses(target string) ([]string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, fmt.Errorf("%q is not host:port", target)
	}
	if net.ParseIP(host) != nil {
		return []string{target}, nil
	}
	for _, n := range c.nodes {
		if n.spec.Name == host {
			return []string{net.JoinHostPort(network.NodeIP(n.index), port)}, nil
		}
	}
	name, namespace, ok := strings.Cut(strings.TrimSuffix(host, ".svc.cluster.local"), ".")
	services := c.services.Load()
	if !ok {
		return nil, fmt.Errorf("%q names no address, node or service.namespace", host)
	}
	if services == nil {
		return nil, fmt.Errorf("cannot resolve %s: services are not served yet", host)
	}
	return services.Lookup(strings.TrimSuffix(namespace, ".svc"), name, port)
}

// accept serves an inherited listener until the process ends.
func accept(fd int, serve func(net.Conn)) error {
	f := os.NewFile(uintptr(fd), "listener-"+strconv.Itoa(fd))
	ln, err := net.FileListener(f)
	f.Close()
	if err != nil {
		return fmt.Errorf("take over listener: %w", err)
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			go serve(conn)
		}
	}()
	return nil
}
