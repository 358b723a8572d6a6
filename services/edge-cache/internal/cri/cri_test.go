package cri

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/pkg/memnet"
	"fairlead.dev/services/edge-cache/internal/liveaddress"
)

// runtime answers calls at a socket as a gRPC server does. The tests in deploy/local use a real one.
type runtime struct {
	answers  map[string]func(request []byte) ([]byte, string) // by method: message and gRPC status
	statuses atomic.Int32
}

func (r *runtime) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	method := request.URL.Path[strings.LastIndex(request.URL.Path, "/")+1:]
	if method == "PodSandboxStatus" {
		r.statuses.Add(1)
	}
	body, _ := io.ReadAll(request.Body)
	message, status := r.answers[method](body[5:])
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	_, _ = w.Write(append(frame, message...))
	w.Header().Set("Grpc-Status", status)
	w.Header().Set("Grpc-Message", "the reason")
}

func startRuntime(t *testing.T, handler http.Handler) *Client {
	t.Helper()
	l := memnet.Listen()
	serve(t, l, handler)
	c, err := newClient(func(ctx context.Context, address string) (net.Conn, error) { return l.Dial(ctx, "tcp", address) })
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// serve serves calls until the test ends.
func serve(t *testing.T, l net.Listener, handler http.Handler) {
	t.Helper()
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		assert.ErrorIs(t, <-done, http.ErrServerClosed)
	})
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	require.NoError(t, err)
	return raw
}

// decode decodes a request. Handlers run in goroutines that cannot end the test.
func decode(t *testing.T, raw []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(raw, m); err != nil {
		t.Errorf("decode request: %v", err)
	}
}

func sandbox(id, uid string, state runtimeapi.PodSandboxState) *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Name: "name", Uid: uid, Namespace: "ns"}, State: state, CreatedAt: 123,
	}
}

func list(t *testing.T, sandboxes ...*runtimeapi.PodSandbox) []byte {
	t.Helper()
	return encode(t, &runtimeapi.ListPodSandboxResponse{Items: sandboxes})
}

func status(t *testing.T, state runtimeapi.PodSandboxState, ips ...string) []byte {
	t.Helper()
	network := &runtimeapi.PodSandboxNetworkStatus{Ip: ips[0]}
	for _, ip := range ips[1:] {
		network.AdditionalIps = append(network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	return encode(t, &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{Id: "id", State: state, Network: network}})
}

func addresses(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, a := range list {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func TestPods(t *testing.T) {
	t.Parallel()
	statuses := map[string][]byte{
		"a": status(t, ready, "10.0.0.1", "fd00::1"), "host": status(t, ready, ""), "ended": status(t, notReady, "10.0.0.9"),
	}
	answer := list(
		t, sandbox("a", "uid-a", ready), sandbox("old", "uid-a-old", notReady), sandbox("host", "uid-host", ready),
		sandbox("ended", "uid-ended", ready), sandbox("gone", "uid-gone", ready), sandbox("", "", ready),
	)
	r := &runtime{}
	r.answers = map[string]func([]byte) ([]byte, string){
		"ListPodSandbox": func(request []byte) ([]byte, string) {
			var got runtimeapi.ListPodSandboxRequest
			decode(t, request, &got)
			assert.NotNil(t, got.GetFilter().GetState())
			assert.Equal(t, ready, got.GetFilter().GetState().GetState())
			return answer, "0"
		},
		"PodSandboxStatus": func(request []byte) ([]byte, string) {
			var got runtimeapi.PodSandboxStatusRequest
			decode(t, request, &got)
			if answer, ok := statuses[got.GetPodSandboxId()]; ok {
				return answer, "0"
			}
			return nil, "5"
		},
	}
	c := startRuntime(t, r)
	got, err := c.ListPods(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]liveaddress.Pod{"uid-a": {Namespace: "ns", Name: "name", Addresses: addresses("10.0.0.1", "fd00::1")}}, got)

	// The addresses of a sandbox do not change; only those without any are asked again.
	before := r.statuses.Load()
	answer = list(t, sandbox("a", "uid-a", ready))
	_, err = c.ListPods(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, r.statuses.Load())

	// A reboot: the same pod has another sandbox.
	statuses["b"] = status(t, ready, "10.0.0.7")
	answer = list(t, sandbox("a", "uid-a", notReady), sandbox("b", "uid-a", ready))
	got, err = c.ListPods(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]liveaddress.Pod{"uid-a": {Namespace: "ns", Name: "name", Addresses: addresses("10.0.0.7")}}, got)
	require.Len(t, c.known, 1)
}

// TestStaticPods are told apart by what the kubelet notes, and not by another annotation with that value.
func TestStaticPods(t *testing.T) {
	t.Parallel()
	annotated := func(uid string, annotations map[string]string) *runtimeapi.PodSandbox {
		s := sandbox("box-"+uid, uid, ready)
		s.Annotations = annotations
		return s
	}
	answer := list(
		t, annotated("file", map[string]string{"kubernetes.io/config.hash": "1", sourceAnnotation: "file"}),
		annotated("http", map[string]string{sourceAnnotation: "http"}),
		annotated("api", map[string]string{sourceAnnotation: "api", "source": "file"}), annotated("none", nil),
	)
	c := startRuntime(t, &runtime{answers: map[string]func([]byte) ([]byte, string){
		"ListPodSandbox":   func([]byte) ([]byte, string) { return answer, "0" },
		"PodSandboxStatus": func([]byte) ([]byte, string) { return status(t, ready, "10.0.0.1"), "0" },
	}})
	got, err := c.ListPods(t.Context())
	require.NoError(t, err)
	static := map[string]bool{}
	for uid, pod := range got {
		static[uid] = pod.Static
		assert.Equal(t, "name", pod.Name)
	}
	require.Equal(t, map[string]bool{"file": true, "http": true, "api": false, "none": false}, static)
}

func TestBadRuntimes(t *testing.T) {
	t.Parallel()
	good := func([]byte) ([]byte, string) { return list(t, sandbox("a", "uid-a", ready)), "0" }
	tests := []struct {
		name       string
		giveList   func([]byte) ([]byte, string)
		giveStatus func([]byte) ([]byte, string)
		wantErr    string
	}{
		{name: "error", giveList: func([]byte) ([]byte, string) { return nil, "12" }, wantErr: "code = Unimplemented desc = the reason"},
		{
			name: "malformed list", giveList: func([]byte) ([]byte, string) { return []byte{0xff, 0xff}, "0" },
			wantErr: "failed to unmarshal",
		},
		{
			name: "too long", giveList: func([]byte) ([]byte, string) { return make([]byte, maxAnswer+1), "0" },
			wantErr: "code = ResourceExhausted",
		},
		{name: "too many", giveList: func([]byte) ([]byte, string) {
			return list(t, slices.Repeat([]*runtimeapi.PodSandbox{sandbox("x", "y", notReady)}, maxSandboxes+1)...), "0"
		}, wantErr: "more than 4096"},
		{name: "no status", giveList: good, giveStatus: func([]byte) ([]byte, string) { return nil, "5" }, wantErr: "code = NotFound"},
		{
			name: "bad address", giveList: good, giveStatus: func([]byte) ([]byte, string) { return status(t, ready, "10.0.0.256"), "0" },
			wantErr: "parse address",
		},
		{
			name: "long address", giveList: good,
			giveStatus: func([]byte) ([]byte, string) { return status(t, ready, strings.Repeat("1", 100)), "0" }, wantErr: "malformed",
		},
		{name: "many addresses", giveList: good, giveStatus: func([]byte) ([]byte, string) {
			return status(t, ready, strings.Split(strings.Repeat("10.0.0.1,", 18)+"10.0.0.1", ",")...), "0"
		}, wantErr: "more than 16"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := startRuntime(t,
				&runtime{
					answers: map[string]func([]byte) ([]byte, string){"ListPodSandbox": tt.giveList, "PodSandboxStatus": tt.giveStatus},
				})
			_, err := c.ListPods(t.Context())
			require.ErrorContains(t, err, tt.wantErr)
		})
	}
	absent, err := New(filepath.Join(t.TempDir(), "absent.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, absent.Close()) })
	_, err = absent.ListPods(t.Context())
	require.ErrorContains(t, err, "no such file")
	plain := startRuntime(t, http.NotFoundHandler())
	_, err = plain.ListPods(t.Context())
	require.ErrorContains(t, err, "404")
}

// TestRuntimeThatComesBack is asked again soon after it was away for a long time.
func TestRuntimeThatComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		isAway := atomic.Bool{}
		isAway.Store(true)
		l := memnet.Listen()
		serve(t, l, &runtime{answers: map[string]func([]byte) ([]byte, string){
			"ListPodSandbox":   func([]byte) ([]byte, string) { return list(t, sandbox("a", "uid-a", ready)), "0" },
			"PodSandboxStatus": func([]byte) ([]byte, string) { return status(t, ready, "10.0.0.1"), "0" },
		}})
		c, err := newClient(func(ctx context.Context, address string) (net.Conn, error) {
			if isAway.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return l.Dial(ctx, "tcp", address)
		})
		require.NoError(t, err)
		defer c.Close()
		for range 1000 {
			_, err := c.ListPods(t.Context())
			require.ErrorContains(t, err, "connection refused")
			time.Sleep(2 * time.Second)
		}
		isAway.Store(false)
		start := time.Now()
		for {
			if _, err := c.ListPods(t.Context()); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.Less(t, time.Since(start), 2*time.Second)
	})
}

const (
	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
)
