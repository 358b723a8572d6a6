package cri

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

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
	body := make([]byte, request.ContentLength)
	_, _ = io.ReadFull(request.Body, body)
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
	c := newClient(l.Dial)
	t.Cleanup(c.http.CloseIdleConnections)
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

func text(number protowire.Number, value string) []byte { return message(number, []byte(value)) }

func message(number protowire.Number, fields ...[]byte) []byte {
	var content []byte
	for _, f := range fields {
		content = append(content, f...)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

func scalar(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

func join(parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func item(id, uid string, state uint64) []byte {
	return message(listItems, text(sandboxID, id), message(sandboxMetadata, text(1, "name"), text(metadataUID, uid), text(metadataSpace, "ns")), scalar(sandboxState, state), scalar(4, 123))
}

func status(state uint64, ips ...string) []byte {
	network := text(networkIP, ips[0])
	for _, ip := range ips[1:] {
		network = append(network, message(networkMore, text(podIP, ip))...)
	}
	return message(statusStatus, text(1, "id"), scalar(statusState, state), message(statusNetwork, network))
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
	statuses := map[string][]byte{"a": status(0, "10.0.0.1", "fd00::1"), "host": status(0, ""), "ended": status(1, "10.0.0.9")}
	list := join(item("a", "uid-a", 0), item("old", "uid-a-old", 1), item("host", "uid-host", 0), item("ended", "uid-ended", 0), item("gone", "uid-gone", 0), item("", "", 0))
	r := &runtime{}
	r.answers = map[string]func([]byte) ([]byte, string){
		"ListPodSandbox": func(request []byte) ([]byte, string) {
			assert.Equal(t, listRequest(), request)
			return list, "0"
		},
		"PodSandboxStatus": func(request []byte) ([]byte, string) {
			id, n := protowire.ConsumeString(request[1:])
			assert.Positive(t, n)
			if answer, ok := statuses[id]; ok {
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
	list = join(item("a", "uid-a", 0))
	_, err = c.ListPods(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, r.statuses.Load())

	// A reboot: the same pod has another sandbox.
	statuses["b"] = status(0, "10.0.0.7")
	list = join(item("a", "uid-a", 1), item("b", "uid-a", 0))
	got, err = c.ListPods(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]liveaddress.Pod{"uid-a": {Namespace: "ns", Name: "name", Addresses: addresses("10.0.0.7")}}, got)
	require.Len(t, c.known, 1)
}

// TestStaticPods are told apart by what the kubelet notes, and not by another annotation with that value.
func TestStaticPods(t *testing.T) {
	t.Parallel()
	note := func(key, value string) []byte {
		return message(sandboxNotes, text(noteKey, key), text(noteValue, value))
	}
	sandbox := func(uid string, notes ...[]byte) []byte {
		fields := [][]byte{text(sandboxID, "box-"+uid), message(sandboxMetadata, text(metadataName, "web"), text(metadataUID, uid), text(metadataSpace, "ns"))}
		return message(listItems, append(fields, notes...)...)
	}
	list := join(
		sandbox("file", note("kubernetes.io/config.hash", "1"), note(sourceAnnotation, "file")), sandbox("http", note(sourceAnnotation, "http")),
		sandbox("api", note(sourceAnnotation, "api"), note("source", "file")), sandbox("none"),
	)
	c := startRuntime(t, &runtime{answers: map[string]func([]byte) ([]byte, string){
		"ListPodSandbox":   func([]byte) ([]byte, string) { return list, "0" },
		"PodSandboxStatus": func([]byte) ([]byte, string) { return status(0, "10.0.0.1"), "0" },
	}})
	got, err := c.ListPods(t.Context())
	require.NoError(t, err)
	static := map[string]bool{}
	for uid, pod := range got {
		static[uid] = pod.Static
		assert.Equal(t, "web", pod.Name)
	}
	require.Equal(t, map[string]bool{"file": true, "http": true, "api": false, "none": false}, static)
}

func TestBadRuntimes(t *testing.T) {
	t.Parallel()
	good := func([]byte) ([]byte, string) { return item("a", "uid-a", 0), "0" }
	tests := []struct {
		name       string
		giveList   func([]byte) ([]byte, string)
		giveStatus func([]byte) ([]byte, string)
		wantErr    string
	}{
		{name: "error", giveList: func([]byte) ([]byte, string) { return nil, "12" }, wantErr: `gRPC status "12": the reason`},
		{name: "malformed list", giveList: func([]byte) ([]byte, string) { return []byte{0xff, 0xff}, "0" }, wantErr: "malformed"},
		{name: "malformed annotation", giveList: func([]byte) ([]byte, string) {
			return message(listItems, text(sandboxID, "a"), message(sandboxNotes, []byte{0xff})), "0"
		}, wantErr: "malformed"},
		{name: "too long", giveList: func([]byte) ([]byte, string) { return make([]byte, maxAnswer), "0" }, wantErr: "exceeds"},
		{name: "too many", giveList: func([]byte) ([]byte, string) {
			var all []byte
			for range maxSandboxes + 1 {
				all = append(all, item("x", "y", 0)...)
			}
			return all, "0"
		}, wantErr: "more than 4096"},
		{name: "no status", giveList: good, giveStatus: func([]byte) ([]byte, string) { return nil, "5" }, wantErr: `gRPC status "5"`},
		{name: "bad address", giveList: good, giveStatus: func([]byte) ([]byte, string) { return status(0, "10.0.0.256"), "0" }, wantErr: "parse address"},
		{name: "long address", giveList: good, giveStatus: func([]byte) ([]byte, string) { return status(0, strings.Repeat("1", 100)), "0" }, wantErr: "malformed"},
		{name: "many addresses", giveList: good, giveStatus: func([]byte) ([]byte, string) {
			return status(0, strings.Split(strings.Repeat("10.0.0.1,", 18)+"10.0.0.1", ",")...), "0"
		}, wantErr: "more than 16"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := startRuntime(t, &runtime{answers: map[string]func([]byte) ([]byte, string){"ListPodSandbox": tt.giveList, "PodSandboxStatus": tt.giveStatus}})
			_, err := c.ListPods(t.Context())
			require.ErrorContains(t, err, tt.wantErr)
		})
	}
	_, err := New(filepath.Join(t.TempDir(), "absent.sock")).ListPods(t.Context())
	require.ErrorContains(t, err, "no such file")
	plain := startRuntime(t, http.NotFoundHandler())
	_, err = plain.ListPods(t.Context())
	require.ErrorContains(t, err, "HTTP status 404")
}

func FuzzMessages(f *testing.F) {
	f.Add(join(item("a", "uid-a", 0), item("b", "uid-b", 1)))
	f.Add(status(0, "10.0.0.1", "fd00::1"))
	f.Fuzz(func(t *testing.T, content []byte) {
		list, err := parseList(content)
		if err == nil {
			assert.LessOrEqual(t, len(list), maxSandboxes)
		}
		all, err := parseStatus(content)
		if err == nil {
			assert.LessOrEqual(t, len(all), maxAddresses)
		}
	})
}
