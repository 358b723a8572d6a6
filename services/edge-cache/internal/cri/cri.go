// Package cri asks the container runtime of the node for the addresses of its pods.
//
// Input: the socket of the runtime. Output: the pods that have a ready sandbox, with their addresses. Two read-only methods of the CRI are enough, with
// two fields each: they are spoken as gRPC over HTTP/2 without the gRPC library and without generated code (docs/adr/0006). The answers are input from another
// process: sizes are bounded, and a malformed answer is an error.
package cri

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"fairlead.dev/services/edge-cache/internal/liveaddress"
)

const (
	// maxAnswer bounds an answer: a node with 1000 pods lists about 1 MB.
	maxAnswer = 8 << 20
	// maxSandboxes bounds the calls of one Pods: the kubelet's default is 110 pods, and the largest documented setups have 1000.
	maxSandboxes = 4096
	// maxAddresses bounds those of one pod: two families, and some networks.
	maxAddresses = 16
	callTimeout  = 5 * time.Second
)

// Client is a client of one runtime. It connects when it needs to.
type Client struct {
	http *http.Client

	mu    sync.Mutex
	known map[string][]netip.Addr // by sandbox: its addresses do not change
}

// New returns a client for the runtime that listens at a Unix socket.
func New(socket string) *Client {
	return newClient(func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	})
}

func newClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Client {
	transport := &http.Transport{DialContext: dial, Protocols: new(http.Protocols), MaxIdleConns: 1, MaxResponseHeaderBytes: 64 << 10}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return &Client{http: &http.Client{Transport: transport, Timeout: callTimeout}, known: map[string][]netip.Addr{}}
}

// ListPods returns the pods of the node by UID. Pods in the network of the node are left out: their address does not change.
func (c *Client) ListPods(ctx context.Context) (map[string]liveaddress.Pod, error) {
	answer, err := c.call(ctx, "ListPodSandbox", listRequest())
	if err != nil {
		return nil, err
	}
	ready, err := parseList(answer)
	if err != nil {
		return nil, fmt.Errorf("read sandboxes of the container runtime: %w", err)
	}
	c.forget(ready)
	result := make(map[string]liveaddress.Pod, len(ready))
	var errs []error
	for _, s := range ready {
		addresses, err := c.addressesOf(ctx, s.id)
		if err != nil {
			errs = append(errs, err) // it may have ended since; the others count
			continue
		}
		if len(addresses) > 0 {
			result[s.uid] = liveaddress.Pod{Namespace: s.namespace, Name: s.name, Static: s.static, Addresses: addresses}
		}
	}
	if len(errs) > 0 && len(errs) == len(ready) {
		return nil, errors.Join(errs[0], fmt.Errorf("no sandbox of %d had a status", len(ready)))
	}
	return result, nil
}

// forget drops sandboxes that are no longer listed.
func (c *Client) forget(ready []sandbox) {
	listed := make(map[string]bool, len(ready))
	for _, s := range ready {
		listed[s.id] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(id string, _ []netip.Addr) bool { return !listed[id] })
}

func (c *Client) addressesOf(ctx context.Context, id string) ([]netip.Addr, error) {
	c.mu.Lock()
	addresses, ok := c.known[id]
	c.mu.Unlock()
	if ok {
		return addresses, nil
	}
	answer, err := c.call(ctx, "PodSandboxStatus", protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id))
	if err != nil {
		return nil, err
	}
	if addresses, err = parseStatus(answer); err != nil {
		return nil, fmt.Errorf("read status of sandbox %s: %w", id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(addresses) > 0 { // its network may not be set up yet
		c.known[id] = addresses
	}
	return addresses, nil
}

// call makes one unary call.
func (c *Client) call(ctx context.Context, method string, request []byte) ([]byte, error) {
	body := make([]byte, 5, 5+len(request))
	binary.BigEndian.PutUint32(body[1:], uint32(len(request)))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/runtime.v1.RuntimeService/"+method, bytes.NewReader(append(body, request...)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("call %s of the container runtime: %w", method, err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("call %s of the container runtime: %w", method, err)
	}
	if len(content) > maxAnswer {
		return nil, fmt.Errorf("call %s of the container runtime: answer exceeds %d bytes", method, maxAnswer)
	}
	if err := checkStatus(answer); err != nil {
		return nil, fmt.Errorf("call %s of the container runtime: %w", method, err)
	}
	message, err := unframe(content)
	if err != nil {
		return nil, fmt.Errorf("call %s of the container runtime: %w", method, err)
	}
	return message, nil
}

// checkStatus reads the outcome of a call, which gRPC puts into trailers, or into headers if there is no message.
func checkStatus(answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP status %d", answer.StatusCode)
	}
	status, message := answer.Trailer.Get("Grpc-Status"), answer.Trailer.Get("Grpc-Message")
	if status == "" {
		status, message = answer.Header.Get("Grpc-Status"), answer.Header.Get("Grpc-Message")
	}
	if status != "0" {
		return fmt.Errorf("gRPC status %q: %.200s", status, message)
	}
	return nil
}

func unframe(content []byte) ([]byte, error) {
	if len(content) < 5 || content[0] != 0 || uint64(binary.BigEndian.Uint32(content[1:])) != uint64(len(content)-5) {
		return nil, errors.New("answer is not one uncompressed message")
	}
	return content[5:], nil
}
