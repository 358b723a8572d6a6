package scale

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

var runtimes = schema.GroupResource{Group: "production-stack.vllm.ai", Resource: "vllmruntimes"}

// scaled is an API server with one object that has a scale.
type scaled struct {
	*Writer

	replicas int64
	unset    bool // the object has no replicas yet
	version  string
	gets     []error // of the next reads; nil: none
	updates  []error // of the next writes
	read     int
	written  []map[string]any // objects, with the field manager
	permits  int
	refuses  error // of permit
	onRead   func()
}

func startScaled() *scaled {
	s := &scaled{replicas: 2, version: "7"}
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("*", "vllmruntimes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "scale" || action.GetNamespace() != "models" {
			return true, nil, errors.New("nobody asks for that")
		}
		if update, is := action.(clienttesting.UpdateActionImpl); is {
			return true, nil, s.update(&update)
		}
		err := s.get()
		return true, s.object(), err
	})
	s.Writer = NewWriter(client, NewKinds(&rig{}, clock.RealClock{}), "owner")
	return s
}

func next(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

func (s *scaled) get() error {
	s.read++
	if s.onRead != nil {
		s.onRead()
	}
	if s.unset {
		return apierrors.NewInternalError(errors.New(`the spec replicas field ".spec.replicas" does not exist`))
	}
	return next(&s.gets)
}

func (s *scaled) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"namespace": "models", "name": "rt", "resourceVersion": s.version},
		"spec": map[string]any{"replicas": s.replicas}, "status": map[string]any{"replicas": int64(1)},
	}}
}

func (s *scaled) update(action *clienttesting.UpdateActionImpl) error {
	if err := next(&s.updates); err != nil {
		return err
	}
	object := action.Object.(*unstructured.Unstructured).Object
	object["manager"] = action.UpdateOptions.FieldManager
	s.written = append(s.written, object)
	return nil
}

func (s *scaled) write(ctx context.Context, from, to int) (written bool, err error) {
	return s.Write(ctx, Change{Namespace: "models", Target: target("VLLMRuntime", "rt"), From: from, To: to}, func() error {
		s.permits++
		return s.refuses
	})
}

func TestWrite(t *testing.T) {
	t.Parallel()
	s := startScaled()
	written, err := s.write(t.Context(), 2, 5)
	require.NoError(t, err)
	assert.True(t, written)
	want := s.object().Object
	want["spec"], want["manager"] = map[string]any{"replicas": int64(5)}, "owner"
	assert.Equal(t, []map[string]any{want}, s.written, "the version that was read")
	assert.Equal(t, 1, s.permits)
}

func TestWriteNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		from, to int
		change   func(s *scaled)
		want     error
	}{
		{"the replicas are there", 1, 2, func(*scaled) {}, nil},
		{"somebody has changed them since the decision", 3, 4, func(*scaled) {}, ErrChanged},
		{"the caller refuses", 2, 5, func(s *scaled) { s.refuses = context.Canceled }, context.Canceled},
		{"the object has gone", 2, 5, func(s *scaled) { s.gets = []error{apierrors.NewNotFound(runtimes, "rt")} }, ErrNotFound},
		{"no answer to a read", 2, 5, func(s *scaled) { s.gets = []error{errors.New("connection refused")} }, ErrBusy},
		{"no answer to a write", 2, 5, func(s *scaled) { s.updates = []error{context.DeadlineExceeded} }, ErrBusy},
		{"no permission to read", 2, 5, func(s *scaled) { s.gets = []error{apierrors.NewForbidden(runtimes, "rt", nil)} }, ErrForbidden},
		{"no permission to write", 2, 5, func(s *scaled) { s.updates = []error{apierrors.NewForbidden(runtimes, "rt", nil)} }, ErrForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startScaled()
			tt.change(s)
			written, err := s.write(t.Context(), tt.from, tt.to)
			assert.False(t, written)
			require.ErrorIs(t, err, tt.want)
			assert.Empty(t, s.written)
			assert.Equal(t, 1, s.read)
		})
	}
	_, err := startScaled().Write(t.Context(), Change{Namespace: "models", Target: target("VLLMRouter", "r"), To: 1}, nil)
	require.ErrorIs(t, err, ErrNoScale)
}

// TestWriteForbidden: the message names what to grant.
func TestWriteForbidden(t *testing.T) {
	t.Parallel()
	s := startScaled()
	s.updates = []error{apierrors.NewForbidden(runtimes, "rt", errors.New("no role"))}
	_, err := s.write(t.Context(), 2, 5)
	require.ErrorContains(t, err, `grant get and update on vllmruntimes/scale of group "production-stack.vllm.ai"`)
	require.ErrorContains(t, err, "no role")
}

// TestWriteConflicts: a conflict is tried again from a new read, and not if somebody has written replicas in between.
func TestWriteConflicts(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(runtimes, "rt", nil)
	s := startScaled()
	s.updates = []error{conflict, conflict}
	s.onRead = func() { s.version += "1" }
	written, err := s.write(t.Context(), 2, 5)
	require.NoError(t, err)
	assert.True(t, written)
	assert.Equal(t, 3, s.read)
	assert.Equal(t, 3, s.permits, "before each write")
	assert.Equal(t, map[string]any{"namespace": "models", "name": "rt", "resourceVersion": "7111"}, s.written[0]["metadata"])

	s = startScaled()
	s.updates = []error{conflict}
	s.onRead = func() { s.replicas = int64(1 + s.read) } // another leader makes them 3
	_, err = s.write(t.Context(), 2, 5)
	require.ErrorIs(t, err, ErrChanged)
	require.ErrorContains(t, err, "there are 3 instead of 2")
	assert.Empty(t, s.written)

	s = startScaled()
	s.updates = []error{conflict, conflict, conflict, conflict}
	_, err = s.write(t.Context(), 2, 5)
	require.ErrorIs(t, err, ErrBusy)
	assert.Equal(t, writeAttempts, s.read)
}

// TestWriteWaits: the writer waits as long as a busy API server asks for, if that is within its time.
func TestWriteWaits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		errs []error
		took time.Duration
		want error
	}{
		{"a time", []error{apierrors.NewTooManyRequests("busy", 3)}, 3 * time.Second, nil},
		{"no time", []error{apierrors.NewTooManyRequestsError("busy"), apierrors.NewServiceUnavailable("starting")}, 2 * busyDelay, nil},
		{"a time that is too long", []error{apierrors.NewTooManyRequests("busy", 3600)}, 0, ErrBusy},
		{"several times", []error{apierrors.NewTooManyRequests("busy", 2), apierrors.NewTooManyRequests("busy", 2), apierrors.NewTooManyRequests("busy", 2)}, 4 * time.Second, ErrBusy},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startScaled()
				s.updates = tt.errs
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				written, err := s.write(ctx, 2, 5)
				require.ErrorIs(t, err, tt.want)
				assert.Equal(t, tt.want == nil, written)
				assert.Equal(t, tt.took, time.Since(began))
				assert.Len(t, s.written, map[bool]int{true: 1}[written])
			})
		})
	}
}

// server answers requests for the scale, and delays as many as it is told to.
type server struct {
	busy   int    // answers with 429
	after  string // Retry-After of these
	writes int
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	code, body := http.StatusOK, `{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"namespace": "models", "name": "rt", "resourceVersion": "7"}, "spec": {"replicas": 2}}`
	header := http.Header{"Content-Type": {"application/json"}}
	if r.Method == http.MethodPut {
		if s.writes++; s.writes <= s.busy {
			code, body = http.StatusTooManyRequests, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429}`
			header.Set("Retry-After", s.after)
		}
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestRetryAfter: the client of Kubernetes waits as the API server asks, and no longer than the time of a target.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		server server
		took   time.Duration
		writes int
		want   error
	}{
		{server{busy: 2, after: "2"}, 4 * time.Second, 3, nil},
		{server{busy: 9, after: "3600"}, 5 * time.Second, 1, ErrBusy},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://api.test", QPS: -1}, &http.Client{Transport: &tt.server})
			require.NoError(t, err)
			s := &scaled{Writer: NewWriter(client, NewKinds(&rig{}, clock.RealClock{}), "owner")}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			_, err = s.write(ctx, 2, 5)
			require.ErrorIs(t, err, tt.want)
			assert.Equal(t, tt.took, time.Since(began))
			assert.Equal(t, tt.writes, tt.server.writes)
		})
	}
}

// TestWriteStops: a writer that waits does not outlive its context.
func TestWriteStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startScaled()
		s.updates = []error{apierrors.NewTooManyRequests("busy", 3)}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := s.write(ctx, 2, 5)
		require.ErrorIs(t, err, ErrBusy)
		assert.Empty(t, s.written)
		assert.Equal(t, 1, s.read)
	})
}

// TestWriteUnset: an object without replicas, such as a new DisaggregatedSetRoleScaler, gets its first ones.
func TestWriteUnset(t *testing.T) {
	t.Parallel()
	s := startScaled()
	s.unset = true
	written, err := s.write(t.Context(), 0, 1)
	require.NoError(t, err)
	assert.True(t, written)
	assert.Equal(t, []map[string]any{{
		"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"namespace": "models", "name": "rt"},
		"spec": map[string]any{"replicas": int64(1)}, "manager": "owner",
	}}, s.written)
	_, err = s.write(t.Context(), 2, 1)
	require.ErrorIs(t, err, ErrChanged)
}
