package externalscaler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"fairlead.dev/pkg/memnet"
	"fairlead.dev/pkg/servingcert"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counts is an observer.
type counts struct {
	mu      sync.Mutex
	answers map[string]int
	streams int
}

func (c *counts) CountAnswer(method, code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[method+" "+code]++
}

func (c *counts) SetStreams(open int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = open
}

func (c *counts) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams
}

// world is a replica behind an address that stays the same.
type world struct {
	table  *Table
	counts *counts

	mu       sync.Mutex
	listener *memnet.Listener // of the current term
}

// dial refuses connections as long as nothing listens.
func (w *world) dial(ctx context.Context, _ string) (net.Conn, error) {
	w.mu.Lock()
	listener := w.listener
	w.mu.Unlock()
	if listener == nil {
		return nil, errors.New("connection refused")
	}
	return listener.Dial(ctx, "", "")
}

// start runs a replica that does not lead yet, until the test ends.
func start(t *testing.T, config *tls.Config) *world {
	t.Helper()
	w := &world{table: NewTable(), counts: &counts{answers: map[string]int{}}}
	s := New(Params{
		Log: zap.NewNop(), Decisions: w.table, Metrics: w.counts, TLS: config,
		Listen: func() (net.Listener, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.listener = memnet.Listen()
			return w.listener, nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return w
}

func (w *world) connect(t *testing.T, creds credentials.TransportCredentials) ExternalScalerClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:variant-autoscaler", grpc.WithTransportCredentials(creds), grpc.WithContextDialer(w.dial))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return NewExternalScalerClient(conn)
}

// keda runs a leader with decisions and a client.
func keda(t *testing.T, variants ...decision.ActedVariant) (*world, ExternalScalerClient) {
	t.Helper()
	w := start(t, nil)
	w.table.Publish(variants)
	synctest.Wait()
	return w, w.connect(t, insecure.NewCredentials())
}

func ref(namespace, name string, metadata ...string) *ScaledObjectRef {
	r := &ScaledObjectRef{Namespace: namespace, Name: name, ScalerMetadata: map[string]string{"scalerAddress": "variant-autoscaler:9443"}}
	for i := 0; i < len(metadata); i += 2 {
		r.ScalerMetadata[metadata[i]] = metadata[i+1]
	}
	return r
}

func metricsOf(t *testing.T, client ExternalScalerClient, r *ScaledObjectRef) (int64, error) {
	t.Helper()
	answer, err := client.GetMetrics(t.Context(), &GetMetricsRequest{ScaledObjectRef: r, MetricName: MetricName})
	if err != nil {
		return 0, err
	}
	require.Len(t, answer.GetMetricValues(), 1)
	value := answer.GetMetricValues()[0]
	assert.Equal(t, MetricName, value.GetMetricName())
	assert.InDelta(t, value.GetMetricValue(), value.GetMetricValueFloat(), 0, "KEDA reads one or the other")
	return value.GetMetricValue(), nil
}

// TestProtocol pins what KEDA sends and reads: the names of the methods, and the numbers and types of the fields.
func TestProtocol(t *testing.T) {
	t.Parallel()
	file := File_externalscaler_proto
	service := file.Services().ByName("ExternalScaler")
	require.NotNil(t, service)
	var methods []string
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		methods = append(methods, fmt.Sprintf("%s(%s) %s stream=%v", m.FullName(), m.Input().Name(), m.Output().Name(), m.IsStreamingServer()))
		assert.False(t, m.IsStreamingClient())
	}
	assert.ElementsMatch(t, []string{
		"externalscaler.ExternalScaler.IsActive(ScaledObjectRef) IsActiveResponse stream=false",
		"externalscaler.ExternalScaler.StreamIsActive(ScaledObjectRef) IsActiveResponse stream=true",
		"externalscaler.ExternalScaler.GetMetricSpec(ScaledObjectRef) GetMetricSpecResponse stream=false",
		"externalscaler.ExternalScaler.StreamMetricSpec(ScaledObjectRef) GetMetricSpecResponse stream=true",
		"externalscaler.ExternalScaler.GetMetrics(GetMetricsRequest) GetMetricsResponse stream=false",
	}, methods)
	want := map[protoreflect.Name][]string{
		"ScaledObjectRef":       {"1 string", "2 string", "3 message"},
		"IsActiveResponse":      {"1 bool"},
		"GetMetricSpecResponse": {"1 message"},
		"MetricSpec":            {"1 string", "2 int64", "3 double"},
		"GetMetricsRequest":     {"1 message", "2 string"},
		"GetMetricsResponse":    {"1 message"},
		"MetricValue":           {"1 string", "2 int64", "3 double"},
	}
	assert.Equal(t, len(want), file.Messages().Len())
	for name, fields := range want {
		message := file.Messages().ByName(name)
		require.NotNil(t, message, name)
		var got []string
		for i := range message.Fields().Len() {
			f := message.Fields().Get(i)
			got = append(got, fmt.Sprintf("%d %s", f.Number(), f.Kind()))
		}
		assert.Equal(t, fields, got, name)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, client := keda(t, variant("a", "chat", 3), variant("a", "code", 0), variant("a", "single", 1))
		spec, err := client.GetMetricSpec(t.Context(), ref("a", "chat"))
		require.NoError(t, err)
		require.Len(t, spec.GetMetricSpecs(), 1)
		assert.Equal(t, MetricName, spec.GetMetricSpecs()[0].GetMetricName())
		assert.Equal(t, int64(1), spec.GetMetricSpecs()[0].GetTargetSize())
		assert.InDelta(t, 1, spec.GetMetricSpecs()[0].GetTargetSizeFloat(), 0)

		for name, want := range map[string]int64{"chat": 3, "single": 1, "code": 0} {
			got, err := metricsOf(t, client, ref("a", name))
			require.NoError(t, err)
			assert.Equal(t, want, got)
			active, err := client.IsActive(t.Context(), ref("a", name))
			require.NoError(t, err)
			assert.Equal(t, want > 0, active.GetResult())
		}
		named, err := metricsOf(t, client, ref("a", "code", MetadataVariant, "chat"))
		require.NoError(t, err)
		assert.Equal(t, int64(3), named)
		w.table.Publish([]decision.ActedVariant{variant("a", "chat", 4)})
		got, err := metricsOf(t, client, ref("a", "chat"))
		require.NoError(t, err)
		assert.Equal(t, int64(4), got)
		assert.Equal(t, map[string]int{"GetMetricSpec OK": 1, "GetMetrics OK": 5, "IsActive OK": 3}, w.counts.answers)
	})
}

func TestWithoutADecisionThereIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := keda(t, variant("a", "chat", 3))
		tests := []struct {
			name string
			ref  *ScaledObjectRef
			want codes.Code
		}{
			{name: "unknown object", ref: ref("a", "none"), want: codes.NotFound},
			{name: "unknown variant", ref: ref("a", "chat", MetadataVariant, "none"), want: codes.NotFound},
			{name: "object of another namespace", ref: ref("b", "chat"), want: codes.NotFound},
			{name: "metadata cannot name a namespace", ref: ref("b", "x", MetadataVariant, "a/chat", "namespace", "a"), want: codes.NotFound},
			{name: "no reference", want: codes.InvalidArgument},
			{name: "no namespace", ref: ref("", "chat"), want: codes.InvalidArgument},
			{name: "no name", ref: ref("a", ""), want: codes.InvalidArgument},
			{name: "endless name", ref: ref("a", strings.Repeat("x", 254)), want: codes.InvalidArgument},
			{name: "endless variant", ref: ref("a", "chat", MetadataVariant, strings.Repeat("x", 254)), want: codes.InvalidArgument},
			{name: "endless metadata", ref: ref("a", "chat", "x", strings.Repeat("x", maxMessage)), want: codes.ResourceExhausted},
		}
		for _, tt := range tests {
			_, err := metricsOf(t, client, tt.ref)
			assert.Equal(t, tt.want, status.Code(err), "%s: %v", tt.name, err)
			_, err = client.IsActive(t.Context(), tt.ref)
			assert.Equal(t, tt.want, status.Code(err), "%s: %v", tt.name, err)
		}
		_, gone := metricsOf(t, client, ref("b", "chat"))
		_, never := metricsOf(t, client, ref("c", "chat"))
		assert.Equal(t, strings.ReplaceAll(gone.Error(), "b/chat", "c/chat"), never.Error(), "a namespace with variants looks like one without")
	})
}

func TestLeaderChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		client := w.connect(t, insecure.NewCredentials())
		synctest.Wait()
		_, err := metricsOf(t, client, ref("a", "chat"))
		assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)

		for term := range int64(3) {
			w.table.Publish([]decision.ActedVariant{variant("a", "chat", 3+int(term))})
			time.Sleep(time.Minute) // of gRPC's pauses between attempts to connect
			got, err := metricsOf(t, client, ref("a", "chat"))
			require.NoError(t, err)
			assert.Equal(t, 3+term, got)

			w.table.EndTerm()
			_, err = metricsOf(t, client, ref("a", "chat"))
			assert.Equal(t, codes.Unavailable, status.Code(err), "at once: %v", err)
			_, err = client.IsActive(t.Context(), ref("a", "chat"))
			assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
			time.Sleep(2 * drainTimeout)
			_, err = w.dial(t.Context(), "")
			require.Error(t, err, "the next connection reaches another replica")
		}
	})
}

func TestANewLeaderThatHasNotDecided(t *testing.T) {
	t.Parallel()
	s := &service{decisions: NewTable(), streams: newStreamCounter(&counts{})}
	_, err := s.IsActive(t.Context(), ref("a", "chat"))
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.Equal(t, codes.Unavailable, status.Code(s.StreamIsActive(ref("a", "chat"), nil)))
	spec, err := s.GetMetricSpec(t.Context(), ref("a", "chat"))
	require.NoError(t, err, "without it KEDA could write a HorizontalPodAutoscaler without metrics")
	assert.Len(t, spec.GetMetricSpecs(), 1)
}

// stream opens a stream and returns what it receives.
func stream(ctx context.Context, t *testing.T, client ExternalScalerClient, r *ScaledObjectRef) (<-chan bool, <-chan error) {
	t.Helper()
	opened, err := client.StreamIsActive(ctx, r)
	require.NoError(t, err)
	active, ended := make(chan bool, 10), make(chan error, 1)
	go func() {
		for {
			answer, err := opened.Recv()
			if err != nil {
				ended <- err
				return
			}
			active <- answer.GetResult()
		}
	}()
	synctest.Wait()
	return active, ended
}

func TestStreamPushesChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, client := keda(t, variant("a", "chat", 3))
		active, ended := stream(t.Context(), t, client, ref("a", "chat"))
		unknown, _ := stream(t.Context(), t, client, ref("a", "later"))
		assert.True(t, <-active, "at once")
		publish := func(variants ...decision.ActedVariant) {
			w.table.Publish(variants)
			synctest.Wait()
		}
		publish(variant("a", "chat", 4))
		assert.Empty(t, active, "it is active as before")
		publish(variant("a", "chat", 0))
		require.Len(t, active, 1)
		assert.False(t, <-active)
		publish()
		assert.Empty(t, active, "a variant without a decision is not inactive")
		assert.Empty(t, unknown)
		publish(variant("a", "chat", 1), variant("a", "later", 0))
		require.Len(t, active, 1)
		assert.True(t, <-active)
		require.Len(t, unknown, 1)
		assert.False(t, <-unknown)
		assert.Equal(t, 2, w.counts.open())

		w.table.EndTerm()
		synctest.Wait()
		assert.Empty(t, active, "the end of a term is not inactive")
		require.ErrorIs(t, <-ended, io.EOF, "KEDA opens it again soon")
		assert.Zero(t, w.counts.open())
	})
}

// TestStreamOfMetricSpecs: KEDA from 2.21 on gets what GetMetricSpec answers, once, on a stream that ends with the term.
func TestStreamOfMetricSpecs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, client := keda(t, variant("a", "chat", 3))
		opened, err := client.StreamMetricSpec(t.Context(), ref("a", "chat"))
		require.NoError(t, err)
		spec, err := opened.Recv()
		require.NoError(t, err)
		want, err := client.GetMetricSpec(t.Context(), ref("a", "chat"))
		require.NoError(t, err)
		assert.Equal(t, want.String(), spec.String())
		assert.Equal(t, 1, w.counts.open())
		ended := make(chan error, 1)
		go func() {
			_, err := opened.Recv()
			ended <- err
		}()
		w.table.Publish([]decision.ActedVariant{variant("a", "chat", 4)})
		synctest.Wait()
		assert.Empty(t, ended, "nothing has changed")
		w.table.EndTerm()
		synctest.Wait()
		require.ErrorIs(t, <-ended, io.EOF, "KEDA opens it again soon")
		assert.Zero(t, w.counts.open())
	})
	s := &service{decisions: NewTable(), streams: newStreamCounter(&counts{})}
	assert.Equal(t, codes.Unavailable, status.Code(s.StreamMetricSpec(ref("a", "chat"), nil)))
	assert.Equal(t, codes.InvalidArgument, status.Code(s.StreamMetricSpec(ref("", "chat"), nil)))
}

func TestStreamEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, client := keda(t, variant("a", "chat", 3))
		ctx, cancel := context.WithCancel(t.Context())
		_, ended := stream(ctx, t, client, ref("a", "chat"))
		assert.Equal(t, 1, w.counts.open())
		cancel()
		assert.Equal(t, codes.Canceled, status.Code(<-ended))
		synctest.Wait()
		assert.Zero(t, w.counts.open())
	})
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, client := keda(t, variant("a", "chat", 3))
		for range maxStreamsOfNamespace {
			_, ended := stream(t.Context(), t, client, ref("a", "chat"))
			assert.Empty(t, ended)
		}
		_, ended := stream(t.Context(), t, client, ref("a", "chat"))
		require.Len(t, ended, 1)
		assert.Equal(t, codes.ResourceExhausted, status.Code(<-ended))
		_, ended = stream(t.Context(), t, client, ref("b", "chat"))
		assert.Empty(t, ended, "another namespace has its own")
		got, err := metricsOf(t, client, ref("a", "chat"))
		require.NoError(t, err)
		assert.Equal(t, int64(3), got, "calls go on")
		w.table.EndTerm()
	})
}

func TestStreamsOfAllNamespaces(t *testing.T) {
	t.Parallel()
	o := &counts{}
	s := newStreamCounter(o)
	for i := range maxStreams {
		require.True(t, s.tryOpen(fmt.Sprint("n", i)))
	}
	assert.False(t, s.tryOpen("one more"))
	s.closeStream("n0")
	assert.True(t, s.tryOpen("one more"))
	for i := 1; i < maxStreams; i++ {
		s.closeStream(fmt.Sprint("n", i))
	}
	s.closeStream("one more")
	assert.Empty(t, s.counts, "no namespace is remembered")
	assert.Zero(t, o.open())
}

// TestConnectionsAreBounded: a caller that opens connections without end loses its own, and KEDA keeps the one that it has and gets others.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		w.table.Publish([]decision.ActedVariant{variant("a", "chat", 3)})
		synctest.Wait()
		dials := 0
		client := func() ExternalScalerClient {
			conn, err := grpc.NewClient("passthrough:variant-autoscaler", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					dials++
					return w.listener.From(netip.MustParseAddrPort("10.0.0.1:1"))(ctx, "", "")
				}))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close()) })
			return NewExternalScalerClient(conn)
		}
		ask := func(c ExternalScalerClient) {
			answer, err := c.IsActive(t.Context(), ref("a", "chat"))
			require.NoError(t, err)
			assert.True(t, answer.GetResult())
		}
		first := client()
		ask(first)
		hostile := w.listener.From(netip.MustParseAddrPort("10.0.0.2:1"))
		var oldest net.Conn
		for range 2 * maxConnections {
			conn, err := hostile(t.Context(), "", "")
			require.NoError(t, err)
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			if oldest == nil {
				oldest = conn
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
		synctest.Wait()
		ask(first)
		ask(client())
		assert.Equal(t, 2, dials)
		_, err := oldest.Write([]byte("x"))
		require.Error(t, err, "it is closed")
	})
}

func TestAPortThatIsInUse(t *testing.T) {
	t.Parallel()
	table := NewTable()
	table.Publish(nil)
	inUse := errors.New("address in use")
	s := New(Params{Log: zap.NewNop(), Decisions: table, Metrics: &counts{}, Listen: func() (net.Listener, error) { return nil, inUse }})
	require.ErrorIs(t, s.Run(t.Context()), inUse)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certificate, err := servingcert.SelfSigned(servingcert.Params{Log: zap.NewNop()}, "variant-autoscaler", servingcert.Options{}, time.Now())
	require.NoError(t, err)
	w := start(t, certificate.TLS(servingcert.Options{}))
	w.table.Publish([]decision.ActedVariant{variant("a", "chat", 3)})
	secure := w.connect(t, credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}))
	answer, err := secure.IsActive(t.Context(), ref("a", "chat"), grpc.WaitForReady(true))
	require.NoError(t, err)
	assert.True(t, answer.GetResult())

	plain := w.connect(t, insecure.NewCredentials())
	_, err = plain.IsActive(t.Context(), ref("a", "chat"))
	assert.Equal(t, codes.Unavailable, status.Code(err))
}
