package metricsauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

var errAway = errors.New("connection refused")

// rig is a guard before a page, and the API server that it asks: prometheus may get /metrics, curious is known and may nothing.
type rig struct {
	handler http.Handler
	clock   *clocktesting.FakePassiveClock
	logs    *observer.ObservedLogs

	mu        sync.Mutex
	away      error // what reviews fail with
	expelled  bool  // prometheus's token is not valid any more
	questions []authorizationv1.SubjectAccessReviewSpec
	tokens    []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	r := &rig{clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), logs: logs}
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", r.reviewToken)
	client.PrependReactor("create", "subjectaccessreviews", r.reviewAccess)
	guard := New(Params{
		Log: zap.New(core), Tokens: client.AuthenticationV1().TokenReviews(), Access: client.AuthorizationV1().SubjectAccessReviews(), Clock: r.clock,
	})
	r.handler = guard.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") }))
	return r
}

func (r *rig) reviewToken(action clienttesting.Action) (bool, runtime.Object, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away != nil {
		return true, nil, r.away
	}
	review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
	r.tokens = append(r.tokens, review.Spec.Token)
	name := map[string]string{"good": "prometheus", "weak": "curious"}[review.Spec.Token]
	review.Status.Authenticated = name != "" && (name != "prometheus" || !r.expelled)
	if review.Status.Authenticated {
		review.Status.User = authenticationv1.UserInfo{
			Username: name, UID: "1", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"a"}},
		}
	}
	return true, review, nil
}

func (r *rig) reviewAccess(action clienttesting.Action) (bool, runtime.Object, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away != nil {
		return true, nil, r.away
	}
	review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
	r.questions = append(r.questions, review.Spec)
	url := review.Spec.NonResourceAttributes
	review.Status.Allowed = review.Spec.User == "prometheus" && url.Verb == "get" && url.Path == "/metrics"
	return true, review, nil
}

func (r *rig) set(change func(r *rig)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

func (r *rig) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tokens)
}

func (r *rig) request(method, path, authorization string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, nil)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, request)
	return w
}

func (r *rig) status(token string) int { return r.request("GET", "/metrics", "Bearer "+token).Code }

func (r *rig) pass(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

func TestGuard(t *testing.T) {
	t.Parallel()
	const wanted = "a bearer token is wanted: Authorization: Bearer TOKEN\n"
	tests := []struct {
		name          string
		method        string
		path          string
		authorization string
		wantStatus    int
		wantText      string
		wantAsked     int
	}{
		{name: "one who may", method: "GET", path: "/metrics", authorization: "Bearer good", wantStatus: 200, wantText: "page", wantAsked: 1},
		{name: "the scheme in other letters", method: "GET", path: "/metrics", authorization: "bearer  good ", wantStatus: 200, wantText: "page", wantAsked: 1},
		{name: "nothing", method: "GET", path: "/metrics", wantStatus: 401, wantText: wanted},
		{name: "a password", method: "GET", path: "/metrics", authorization: "Basic good", wantStatus: 401, wantText: wanted},
		{name: "an empty token", method: "GET", path: "/metrics", authorization: "Bearer ", wantStatus: 401, wantText: wanted},
		{
			name: "a token of nobody", method: "GET", path: "/metrics", authorization: "Bearer stolen",
			wantStatus: 401, wantText: "the bearer token is not valid in this cluster\n", wantAsked: 1,
		},
		{
			name: "one who may not", method: "GET", path: "/metrics", authorization: "Bearer weak", wantStatus: 403, wantAsked: 1,
			wantText: "user \"curious\" may not get /metrics: bind a ClusterRole with nonResourceURLs [\"/metrics\"] and verbs [\"get\"]\n",
		},
		{
			name: "another path", method: "GET", path: "/debug/pprof/heap", authorization: "Bearer good", wantStatus: 403, wantAsked: 1,
			wantText: "user \"prometheus\" may not get /debug/pprof/heap: bind a ClusterRole with nonResourceURLs [\"/debug/pprof/heap\"] and verbs [\"get\"]\n",
		},
		{
			name: "another verb", method: "POST", path: "/metrics", authorization: "Bearer good", wantStatus: 403, wantAsked: 1,
			wantText: "user \"prometheus\" may not post /metrics: bind a ClusterRole with nonResourceURLs [\"/metrics\"] and verbs [\"post\"]\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := r.request(tt.method, tt.path, tt.authorization)
			assert.Equal(t, tt.wantStatus, w.Code)
			assert.Equal(t, tt.wantText, w.Body.String())
			assert.Equal(t, tt.wantAsked, r.asked())
			assert.Equal(t, tt.wantStatus == 401, w.Header().Get("WWW-Authenticate") == "Bearer")
		})
	}
}

func TestTheWholeUserIsReviewed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.Equal(t, 200, r.status("good"))
	assert.Equal(t, []authorizationv1.SubjectAccessReviewSpec{{
		User: "prometheus", UID: "1", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"pod": {"a"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}, r.questions)
}

func TestAnswersAreKeptForAWhile(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		token string
		want  int
		keep  time.Duration
	}{
		{name: "yes", token: "good", want: 200, keep: allowedFor},
		{name: "no", token: "weak", want: 403, keep: deniedFor},
		{name: "nobody", token: "stolen", want: 401, keep: deniedFor},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			assert.Equal(t, tt.want, r.status(tt.token))
			r.pass(tt.keep - time.Millisecond)
			assert.Equal(t, tt.want, r.status(tt.token))
			assert.Equal(t, 1, r.asked())
			r.pass(time.Millisecond)
			assert.Equal(t, tt.want, r.status(tt.token))
			assert.Equal(t, 2, r.asked())
		})
	}
}

func TestATokenThatIsWithdrawnEndsWithItsYes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.Equal(t, 200, r.status("good"))
	r.set(func(r *rig) { r.expelled = true })
	r.pass(allowedFor)
	assert.Equal(t, 401, r.status("good"))
	r.set(func(r *rig) { r.away = errAway })
	r.pass(deniedFor)
	assert.Equal(t, 503, r.status("good"), "an old yes does not come back")
}

func TestOutageOfTheAPIServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.Equal(t, 200, r.status("good"))
	require.Equal(t, 403, r.status("weak"))
	r.set(func(r *rig) { r.away = errAway })
	r.pass(allowedFor)
	assert.Equal(t, 200, r.status("good"), "one that was let in before")
	assert.Equal(t, 503, r.status("weak"))
	assert.Contains(t, r.request("GET", "/metrics", "Bearer new").Body.String(), "the Kubernetes API server cannot be asked")
	warnings := r.logs.FilterLevelExact(zap.WarnLevel).All()
	require.Len(t, warnings, 1, "once")
	assert.Contains(t, warnings[0].ContextMap()["error"], "create token review: "+errAway.Error())

	r.pass(outageFor - allowedFor + time.Millisecond)
	assert.Equal(t, 503, r.status("good"), "not for ever")
	r.set(func(r *rig) { r.away = nil })
	assert.Equal(t, 200, r.status("good"))
	assert.Equal(t, 1, r.logs.FilterMessage("API server authorizes access to metrics again").Len())
}

func TestOutagesDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	flap := func(times int) {
		for n := range times {
			r.set(func(r *rig) { r.away = errAway })
			require.Equal(t, 503, r.status(fmt.Sprintf("away-%d", n)))
			r.set(func(r *rig) { r.away = nil })
			r.pass(deniedFor + time.Millisecond)
			require.Equal(t, 401, r.status(fmt.Sprintf("back-%d", n)))
		}
	}
	flap(5) // within a minute
	assert.Equal(t, 2, r.logs.Len(), "its beginning and its end")
	r.pass(tellAgain)
	flap(1)
	assert.Equal(t, 4, r.logs.Len())
}

func TestAClientThatLeavesIsNoOutage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.away = errAway
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	request := httptest.NewRequestWithContext(ctx, "GET", "/metrics", nil)
	request.Header.Set("Authorization", "Bearer good")
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, request)
	assert.Equal(t, 503, w.Code)
	assert.Zero(t, r.logs.Len())
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var guessing sync.WaitGroup
	for n := range 2 * maxKept {
		guessing.Go(func() { assert.Equal(t, 401, r.status(fmt.Sprintf("guess-%d", n))) })
	}
	guessing.Wait()
	asked := r.asked()
	for n := range 2 * maxKept {
		r.status(fmt.Sprintf("guess-%d", n))
	}
	assert.GreaterOrEqual(t, r.asked()-asked, maxKept, "the oldest were forgotten")
}
