// Package cri asks the container runtime of the node for the addresses of its pods.
//
// Input: the socket of the runtime. Output: the pods that have a ready sandbox, with their addresses. The answers are input from another
// process: sizes are bounded, and a malformed answer is an error.
package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/services/edge-cache/internal/liveaddress"
)

const (
	// maxAnswer bounds an answer: a node with 1000 pods lists about 1 MB.
	maxAnswer = 8 << 20
	// maxHeaders bounds the headers and trailers of an answer.
	maxHeaders = 64 << 10
	// maxSandboxes bounds the calls of one ListPods: the kubelet's default is 110 pods, and the largest documented setups have 1000.
	maxSandboxes = 4096
	// maxAddresses bounds those of one pod: two families, and some networks.
	maxAddresses = 16
	// maxAddressText is longer than any address.
	maxAddressText = 64
	callTimeout    = 5 * time.Second
	// maxReconnectDelay is the longest pause between attempts to connect. It is shorter than the pause between calls, so that each call can
	// connect: gRPC's default of two minutes would leave addresses wrong for as long after the runtime is back.
	maxReconnectDelay = time.Second
)

// The kubelet writes into this annotation where it has a pod from, whatever the pod says; api means the API server.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	sourceFile       = "file"
	sourceHTTP       = "http"
)

// Client is a client of one runtime, for one goroutine. It connects when it needs to.
type Client struct {
	connection *grpc.ClientConn
	runtime    runtimeapi.RuntimeServiceClient
	known      map[string][]netip.Addr // by sandbox: its addresses do not change
}

// New returns a client for the runtime that listens at a Unix socket.
func New(socket string) (*Client, error) {
	return newClient(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	})
}

func newClient(dial func(ctx context.Context, address string) (net.Conn, error)) (*Client, error) {
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay, reconnect.MaxDelay = maxReconnectDelay/4, maxReconnectDelay
	connection, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: callTimeout}),
		grpc.WithMaxHeaderListSize(maxHeaders), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
	if err != nil {
		return nil, fmt.Errorf("create client of the container runtime: %w", err)
	}
	return &Client{connection: connection, runtime: runtimeapi.NewRuntimeServiceClient(connection), known: map[string][]netip.Addr{}}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.connection.Close() }

// ListPods returns the pods of the node by UID. Pods in the network of the node are left out: their address does not change. A pod has one
// ready sandbox; should a runtime list several, the last one counts.
func (c *Client) ListPods(ctx context.Context) (map[string]liveaddress.Pod, error) {
	sandboxes, err := c.listSandboxes(ctx)
	if err != nil {
		return nil, err
	}
	c.forgetAbsent(sandboxes)
	pods := make(map[string]liveaddress.Pod, len(sandboxes))
	var errs []error
	for _, s := range sandboxes {
		addresses, err := c.addressesOf(ctx, s.GetId())
		if err != nil {
			errs = append(errs, err) // it may have ended since; the others count
			continue
		}
		if len(addresses) > 0 {
			pods[s.Metadata.GetUid()] = liveaddress.Pod{
				Namespace: s.Metadata.GetNamespace(), Name: s.Metadata.GetName(), Static: isStatic(s), Addresses: addresses,
			}
		}
	}
	if len(errs) > 0 && len(errs) == len(sandboxes) {
		return nil, errors.Join(errs[0], fmt.Errorf("no sandbox of %d had a status", len(sandboxes)))
	}
	return pods, nil
}

// listSandboxes returns the ready sandboxes.
func (c *Client) listSandboxes(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	answer, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{State: ready}})
	if err != nil {
		return nil, fmt.Errorf("call ListPodSandbox of the container runtime: %w", err)
	}
	if len(answer.GetItems()) > maxSandboxes {
		return nil, fmt.Errorf("read sandboxes of the container runtime: more than %d sandboxes", maxSandboxes)
	}
	return slices.DeleteFunc(answer.GetItems(), func(s *runtimeapi.PodSandbox) bool {
		return s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY || s.GetId() == "" || s.GetMetadata().GetUid() == ""
	}), nil
}

func isStatic(s *runtimeapi.PodSandbox) bool {
	source := s.GetAnnotations()[sourceAnnotation]
	return source == sourceFile || source == sourceHTTP
}

// forgetAbsent drops sandboxes that are no longer listed.
func (c *Client) forgetAbsent(sandboxes []*runtimeapi.PodSandbox) {
	listed := make(map[string]bool, len(sandboxes))
	for _, s := range sandboxes {
		listed[s.GetId()] = true
	}
	maps.DeleteFunc(c.known, func(id string, _ []netip.Addr) bool { return !listed[id] })
}

func (c *Client) addressesOf(ctx context.Context, id string) ([]netip.Addr, error) {
	if addresses, ok := c.known[id]; ok {
		return addresses, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, fmt.Errorf("call PodSandboxStatus of the container runtime: %w", err)
	}
	addresses, err := parseAddresses(answer.GetStatus())
	if err != nil {
		return nil, fmt.Errorf("read status of sandbox %s: %w", id, err)
	}
	if len(addresses) > 0 { // its network may not be set up yet
		c.known[id] = addresses
	}
	return addresses, nil
}

// parseAddresses returns the addresses of a ready sandbox, the main one first.
func parseAddresses(s *runtimeapi.PodSandboxStatus) ([]netip.Addr, error) {
	texts := []string{s.GetNetwork().GetIp()}
	for _, ip := range s.GetNetwork().GetAdditionalIps() {
		texts = append(texts, ip.GetIp())
	}
	var addresses []netip.Addr
	for _, text := range texts {
		if text == "" {
			continue
		}
		if len(addresses) == maxAddresses {
			return nil, fmt.Errorf("more than %d addresses", maxAddresses)
		}
		if len(text) > maxAddressText {
			return nil, errors.New("address is malformed")
		}
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("parse address of pod: %w", err)
		}
		addresses = append(addresses, address.Unmap())
	}
	if s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil, nil
	}
	return addresses, nil
}
