//go:build system

package flow

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/edge-cache/internal/config"
)

// liar is an API server that answers requests for slices as a test wants, and passes everything else on.
type liar struct {
	server *httptest.Server
	proxy  *httputil.ReverseProxy // the truth
	token  string                 // a file; the API server gets a client certificate instead
	lie    atomic.Pointer[http.HandlerFunc]
	all    atomic.Bool // lie about everything, not only slices
	lies   atomic.Int32
}

func (w *world) liar() *liar {
	w.t.Helper()
	target, err := url.Parse(w.cluster.RESTConfig().Host)
	require.NoError(w.t, err)
	transport, err := rest.TransportFor(w.cluster.RESTConfig())
	require.NoError(w.t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Header.Del("Authorization") }, Transport: transport,
		FlushInterval: -1,
	}
	l := &liar{proxy: proxy, token: filepath.Join(w.t.TempDir(), "token")}
	require.NoError(w.t, os.WriteFile(l.token, []byte("t"), 0o600))
	l.server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if lie := l.lie.Load(); lie != nil && (l.all.Load() || strings.HasSuffix(r.URL.Path, "/endpointslices")) {
			l.lies.Add(1)
			(*lie)(out, r)
			return
		}
		proxy.ServeHTTP(out, r)
	}))
	w.t.Cleanup(func() { l.server.CloseClientConnections(); l.server.Close() })
	return l
}

// tell begins with a lie, nil is the truth. Open watches end, so that the cache asks again.
func (l *liar) tell(lie http.HandlerFunc) {
	l.lies.Store(0)
	if lie == nil {
		l.lie.Store(nil)
	} else {
		l.lie.Store(&lie)
	}
	l.server.CloseClientConnections()
}

func (l *liar) configure(cfg *config.Config) {
	cfg.Upstream = config.Upstream{Server: l.server.URL, TokenFile: l.token}
}

// protobuf encodes an object as an API server does.
func protobuf(t *testing.T, kind string, object message) []byte {
	t.Helper()
	return seal(t, "discovery.k8s.io/v1", kind, object)
}

type message interface{ Marshal() ([]byte, error) }

// watchEvent encodes an event with its length, as in a watch.
func watchEvent(t *testing.T, typ, apiVersion, kind string, object message) []byte {
	t.Helper()
	e := metav1.WatchEvent{Type: typ, Object: k8sruntime.RawExtension{Raw: seal(t, apiVersion, kind, object)}}
	body, err := e.Marshal()
	require.NoError(t, err)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func seal(t *testing.T, apiVersion, kind string, object message) []byte {
	t.Helper()
	raw, err := object.Marshal()
	require.NoError(t, err)
	unknown := k8sruntime.Unknown{TypeMeta: k8sruntime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	body, err := unknown.Marshal()
	require.NoError(t, err)
	return append([]byte("k8s\x00"), body...)
}

func answerProtobuf(body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case q.Get("sendInitialEvents") != "":
			http.Error(w, "no watch-list", http.StatusUnprocessableEntity)
			return
		case q.Get("watch") != "": // so that the cache lists
			http.Error(w, "history is gone", http.StatusGone)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(body)
	}
}

// endless writes a part of an answer again and again.
func endless(head, part []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		if r.URL.Query().Get("watch") == "" {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		}
		_, err := w.Write(head)
		for sent := 0; err == nil && sent < 2<<30 && r.Context().Err() == nil; sent += len(part) {
			_, err = w.Write(part)
		}
	}
}

func listOf(rv string, items ...discoveryv1.EndpointSlice) *discoveryv1.EndpointSliceList {
	return &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: rv}, Items: items}
}

// TestEndlessAnswers gives answers for slices that do not end, or claim sizes. The cache keeps little memory. The test is not parallel,
// because it measures the memory of the process.
func TestEndlessAnswers(t *testing.T) {
	w := newWorld(t)
	w.createSlicesToKeep()
	part := make([]byte, 64<<10)
	before := heap()
	w.deceive(t, map[string]http.HandlerFunc{
		"one object":     endless(append([]byte("k8s\x00"), 0x12, 0xff, 0xff, 0xff, 0xff, 0x07, 0x12, 0xff, 0xff, 0xff, 0xff, 0x06), part),
		"garbage":        endless([]byte("k8s\x00"), part),
		"frame of 2 GiB": endless(binary.BigEndian.AppendUint32(nil, 1<<31), part),
	}, map[string]string{"frame of 2 GiB": "it is not Kubernetes protobuf"})
	assert.Less(t, heap(), before+64<<20, "memory of all caches of this test")
}

// createSlicesToKeep creates what a deceived cache has to keep.
func (w *world) createSlicesToKeep() {
	w.node("in-1", "edge")
	for i := range 20 {
		w.createSlice(slice("default", "a", fmt.Sprint("a-", i), "in-1", "in-1"))
	}
}

// TestHostileAPIServer gives wrong answers for slices. Whatever they are, the controller keeps what it has, and the truth repairs
// everything.
func TestHostileAPIServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createSlicesToKeep()
	item := *slice("default", "a", "a-1", "in-1")
	item.ResourceVersion = "many"
	huge := *slice("default", "a", "a-1", "in-1")
	huge.ResourceVersion = "18446744073709551615"
	nameless := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "99999999"}}
	good := protobuf(t, "EndpointSliceList", listOf("99999999", *slice("default", "a", "a-1", "in-1")))
	lies := map[string]http.HandlerFunc{
		"garbage":                      answerProtobuf([]byte("k8s\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")),
		"no prefix":                    answerProtobuf([]byte(strings.Repeat("x", 1000))),
		"truncated list":               answerProtobuf(good[:len(good)-10]),
		"empty list without a version": answerProtobuf(protobuf(t, "EndpointSliceList", listOf(""))),
		"version that is no number":    answerProtobuf(protobuf(t, "EndpointSliceList", listOf("12", item))),
		"version out of range":         answerProtobuf(protobuf(t, "EndpointSliceList", listOf("18446744073709551615", huge))),
		"object without a name":        answerProtobuf(protobuf(t, "EndpointSliceList", listOf("99999999", nameless))),
		"another kind":                 answerProtobuf(protobuf(t, "PodList", listOf("99999999"))),
		"HTML": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>sign in to the hotel network</html>")
		},
		"not found":      func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"bad request":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad", http.StatusBadRequest) },
		"internal error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad", http.StatusInternalServerError) },
		"redirect":       func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"gzip that is no gzip": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(make([]byte, 1000))
		},
	}
	w.deceive(t, lies, messagesOfLies())
}

// messagesOfLies are parts of the warnings that an administrator gets.
func messagesOfLies() map[string]string {
	return map[string]string{
		"no prefix":                    "it is not Kubernetes protobuf",
		"truncated list":               "unexpected EOF",
		"empty list without a version": `resourceVersion "" is not a positive decimal number`,
		"version that is no number":    `object default/a-1: resourceVersion "many" is not a positive decimal number`,
		"version out of range":         `resourceVersion "18446744073709551615" is too large`,
		"object without a name":        "object has no metadata.name",
		"another kind": "the answer has objects of kind Pod of discovery.k8s.io/v1, not EndpointSlice of " +
			"discovery.k8s.io/v1",
		"HTML":                 `the answer is "text/html", not application/vnd.kubernetes.protobuf`,
		"not found":            "API server: 404 NotFound: 404 page not found",
		"bad request":          "API server: 400 BadRequest: bad",
		"internal error":       "API server: 500 InternalServerError: bad",
		"redirect":             "API server: 302 Found",
		"gzip that is no gzip": "gzip: invalid header",
	}
}

// deceive runs a cache for each lie, all at the same time: the cache repeats a request after growing pauses.
func (w *world) deceive(t *testing.T, lies map[string]http.HandlerFunc, messages map[string]string) {
	t.Helper()
	want := w.oracle("edge")
	all := map[string]*deceived{}
	for name := range lies {
		all[name] = w.deceived(t)
	}
	for name, lie := range lies {
		all[name].tell(lie)
	}
	for name, d := range all {
		require.Eventually(t, func() bool { return d.lies.Load() >= 2 }, kubetest.Patience, tick, "%s: the cache did not ask", name)
	}
	time.Sleep(50 * time.Millisecond)
	for name, message := range messages {
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Contains(c, all[name].warnings(), message) }, kubetest.Patience, tick,
			name)
	}
	for name, d := range all {
		assert.Equal(t, want, addresses(t, d.informer.GetStore().List()), name)
		list, err := d.client().DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		require.NoError(t, err, name)
		assert.Len(t, list.Items, len(want), name)
		d.tell(nil)
	}
	w.createSlice(slice("default", "b", "b-1", "in-1"))
	for _, d := range all {
		d.converges(d.informer)
	}
}

// deceived is a cache with an API server that can lie, and an informer that has the truth.
type deceived struct {
	*liar
	*edge

	informer cache.SharedIndexInformer
	logged   *observer.ObservedLogs
}

// warnings returns the errors of all warnings about slices.
func (d *deceived) warnings() string {
	var text []string
	for _, entry := range d.logged.All() {
		if fields := entry.ContextMap(); entry.Level == zap.WarnLevel && fields["store"] == "discovery.k8s.io/v1/endpointslices" {
			text = append(text, fmt.Sprint(fields["error"]))
		}
	}
	return strings.Join(text, "\n")
}

func (w *world) deceived(t *testing.T) *deceived {
	t.Helper()
	l := w.liar()
	e := w.prepare("edge", l.configure)
	core, logged := observer.New(zap.WarnLevel)
	e.log = zap.New(core)
	t.Cleanup(e.stop)
	e.start()
	e.ready()
	informer := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, informer)
	e.converges(informer)
	return &deceived{liar: l, edge: e, informer: informer, logged: logged}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestWatchThatLies sends events with wrong types and versions.
func TestWatchThatLies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	made := w.createSlice(slice("default", "a", "a-1", "in-1"))
	// Events that go backwards, in a watch that is otherwise well-formed.
	event := func(kind, rv string) []byte {
		s := *slice("default", "a", "a-1")
		s.UID, s.ResourceVersion = made.UID, rv
		return watchEvent(t, kind, "discovery.k8s.io/v1", "EndpointSlice", &s)
	}
	lies := map[string]http.HandlerFunc{}
	for kind, versions := range map[string][]string{
		"MODIFIED": {"1", "0", "-5", "18446744073709551615", "x", ""}, "DELETED": {"1", "x"}, "STRANGE": {"99999999"},
		"BOOKMARK": {"1", "x", ""},
	} {
		for _, rv := range versions {
			lies[fmt.Sprintf("%s at %q", kind, rv)] = watchOnly(event(kind, rv))
		}
	}
	w.deceive(t, lies, nil)
}

// watchOnly answers watches, and nothing else.
func watchOnly(body []byte) http.HandlerFunc {
	return func(out http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("sendInitialEvents") != "":
			http.Error(out, "no watch-list", http.StatusUnprocessableEntity)
		case r.URL.Query().Get("watch") == "" && r.URL.Query().Get("limit") == "":
			http.Error(out, "no list", http.StatusInternalServerError)
		case r.URL.Query().Get("watch") == "":
			out.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			unknown := k8sruntime.Unknown{TypeMeta: k8sruntime.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}}
			unknown.Raw, _ = listOf("99999999").Marshal()
			current, _ := unknown.Marshal()
			_, _ = out.Write(append([]byte("k8s\x00"), current...))
		default:
			out.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			_, _ = out.Write(body)
		}
	}
}

// TestFlippedBitsOfTheCache damages the files of a cache that is stopped. It starts offline with a state that it had, or says that it has
// none.
func TestFlippedBitsOfTheCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	e := w.edge("edge").ready()
	for i := range 30 {
		w.createSlice(slice("default", "a", fmt.Sprint("a-", i), "in-1"))
	}
	informer := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, informer)
	e.converges(informer)
	want := e.oracle("edge")
	e.stop()
	w.network.set(linkCut)
	pristine := readFolder(t, filepath.Join(e.cfg.Data.Dir, "journal"))
	random := rand.New(rand.NewPCG(3, 3))
	ready := 0
	for range 6 {
		writeFolder(t, filepath.Join(e.cfg.Data.Dir, "journal"), pristine, random)
		e.start()
		require.Eventually(t, func() bool { return e.metric("fairlead_edgecache_journal_degraded") >= 0 }, kubetest.Patience, tick,
			"the cache does not start")
		list, err := e.client().DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err == nil {
			ready++
			for i := range list.Items {
				s := &list.Items[i]
				assert.Equal(t, want[s.Namespace+"/"+s.Name], describe(s))
			}
		}
		e.stop()
	}
	t.Logf("%d of 6 damaged stores served", ready)
	w.network.set(linkUp)
	e.start()
	e.ready()
	e.converges(e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest())))
}

func readFolder(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, entry := range entries {
		if files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			require.NoError(t, err)
		}
	}
	return files
}

// writeFolder writes files with some bits flipped.
func writeFolder(t *testing.T, dir string, files map[string][]byte, random *rand.Rand) {
	t.Helper()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, content := range files {
		content = bytes.Clone(content)
		for range random.IntN(4) {
			content[random.IntN(len(content))] ^= 1 << random.IntN(8)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
}

// TestThousandWatches opens a thousand watches. Those above the limit are refused with 429, the others work, and the memory is bounded. It
// is not parallel, because it measures the memory of the process.
func TestThousandWatches(t *testing.T) {
	w := newWorld(t)
	w.node("in-1", "edge")
	w.createSlice(slice("default", "a", "a-1", "in-1"))
	e := w.edge("edge").ready()
	before := heap()
	var group sync.WaitGroup
	var open, refused atomic.Int32
	transport, err := rest.TransportFor(e.rest())
	require.NoError(t, err)
	for range 1000 {
		group.Go(func() {
			target := e.rest().Host + "/apis/discovery.k8s.io/v1/endpointslices?watch=true&timeoutSeconds=3600"
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
			if err != nil {
				refused.Add(1)
				return
			}
			response, err := transport.RoundTrip(request)
			if err != nil {
				refused.Add(1)
				return
			}
			switch response.StatusCode {
			case http.StatusOK:
				open.Add(1)
				t.Cleanup(func() { response.Body.Close() })
			case http.StatusTooManyRequests:
				refused.Add(1)
				response.Body.Close()
			default:
				assert.Failf(t, "unexpected answer", "%s", response.Status)
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	require.Eventually(t, func() bool { return int(open.Load()) == e.cfg.Client.MaxWatches }, kubetest.Patience, tick)
	// The client dials for every request until it knows that the server speaks HTTP/2. What those connections take goes with them.
	assert.Eventually(t, func() bool { return heap() < before+64<<20 }, kubetest.Patience, tick)
	require.Eventually(t, func() bool { return e.metric("fairlead_edgecache_watches") == float64(e.cfg.Client.MaxWatches) },
		kubetest.Patience, tick)
	select {
	case <-done:
	case <-time.After(kubetest.Patience):
		t.Log("requests above the limit of streams wait in the client")
	}
}
