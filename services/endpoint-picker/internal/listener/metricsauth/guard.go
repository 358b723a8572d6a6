// Package metricsauth restricts access to metrics with the permissions of Kubernetes: the API server checks the bearer token
// of a request (TokenReview), and whether its user may use the verb on the path (SubjectAccessReview of a non-resource URL,
// such as get on /metrics).
//
//	no token, or not a token        401
//	a user who may not              403
//	the API server cannot say       503, unless it said yes to the same request a short while ago
//
// Answers of the API server are cached, so that a scrape costs little, and for longer while it is unavailable: metrics are
// needed most in an outage. Tokens are stored only as digests.
package metricsauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	allowedFor = time.Minute      // time until the API server is asked again
	deniedFor  = 10 * time.Second // short, so that a new role takes effect soon
	outageFor  = 10 * time.Minute // time that a yes stays valid while the API server is unavailable
	maxKept    = 1024
	askTimeout = 5 * time.Second // timeout of both reviews together
	tellAgain  = time.Minute     // minimum time between messages about outages
)

// tokenReviewer finds the user of a token.
type tokenReviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, o metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// accessReviewer checks the permissions of a user.
type accessReviewer interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview,
		o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Params are the parameters of New.
type Params struct {
	Log    *zap.Logger
	Tokens tokenReviewer
	Access accessReviewer
	Clock  clock.PassiveClock
}

// Guard protects HTTP handlers.
type Guard struct {
	params    Params
	decisions *cache.LRUExpireCache
	outage    outage
}

// outage limits messages about questions without an answer, so that clients who ask too much cannot fill the log.
type outage struct {
	mu       sync.Mutex
	isLogged bool
	toldAt   time.Time
}

// question is a question for the API server. Path and verb are those of the request, in Kubernetes' form.
type question struct {
	token      [sha256.Size]byte
	verb, path string
}

// answer is the answer to a question.
type answer struct {
	status  int
	text    string // for the client
	askedAt time.Time
}

// New returns a Guard with an empty cache.
func New(p Params) *Guard {
	return &Guard{params: p, decisions: cache.NewLRUExpireCacheWithClock(maxKept, p.Clock)}
}

// Protect returns a handler that passes authorized requests to next.
func (g *Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := g.authorize(r)
		switch a.status {
		case http.StatusOK:
			next.ServeHTTP(w, r)
			return
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		http.Error(w, a.text, a.status)
	})
}

// authorize answers from the cache, or asks.
func (g *Guard) authorize(r *http.Request) answer {
	token := bearerToken(r.Header.Get("Authorization"))
	if token == "" {
		return answer{status: http.StatusUnauthorized, text: "a bearer token is wanted: Authorization: Bearer TOKEN"}
	}
	q := question{token: sha256.Sum256([]byte(token)), verb: strings.ToLower(r.Method), path: r.URL.Path}
	cached, _ := g.decisions.Get(q)
	last, known := cached.(answer)
	now := g.params.Clock.Now()
	if fresh, _ := last.validTimes(); known && now.Sub(last.askedAt) < fresh {
		return last
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	a, err := g.askAPIServer(ctx, token, q)
	switch {
	case err == nil:
		g.logRecovery()
		a.askedAt = now
		_, outage := a.validTimes()
		g.decisions.Add(q, a, outage)
		return a
	case errors.Is(r.Context().Err(), context.Canceled): // the client disconnected, which is no outage
	default:
		g.logOutage(err)
	}
	if known && last.status == http.StatusOK {
		return last
	}
	return answer{status: http.StatusServiceUnavailable, text: "the Kubernetes API server cannot be asked whether you may see this: the log of this program says why"}
}

// askAPIServer asks the API server.
func (g *Guard) askAPIServer(ctx context.Context, token string, q question) (answer, error) {
	review, err := g.params.Tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}},
		metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("create token review: %w", err)
	}
	if !review.Status.Authenticated {
		return answer{status: http.StatusUnauthorized, text: "the bearer token is not valid in this cluster"}, nil
	}
	user := review.Status.User
	access, err := g.params.Access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:                  user.Username,
		UID:                   user.UID,
		Groups:                user.Groups,
		Extra:                 convertExtra(user.Extra),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: q.path, Verb: q.verb},
	}}, metav1.CreateOptions{})
	if err != nil {
		return answer{}, fmt.Errorf("create subject access review: %w", err)
	}
	if !access.Status.Allowed {
		return answer{status: http.StatusForbidden, text: fmt.Sprintf(
			"user %q may not %s %s: bind a ClusterRole with nonResourceURLs [%q] and verbs [%q]", user.Username, q.verb, q.path, q.path, q.verb)}, nil
	}
	return answer{status: http.StatusOK}, nil
}

// logOutage logs the start of an outage.
func (g *Guard) logOutage(err error) {
	now := g.params.Clock.Now()
	g.outage.mu.Lock()
	tell := !g.outage.isLogged && now.Sub(g.outage.toldAt) >= tellAgain
	if tell {
		g.outage.isLogged, g.outage.toldAt = true, now
	}
	g.outage.mu.Unlock()
	if tell {
		g.params.Log.Warn("Could not ask the API server who may read metrics, kept its last answers: grant create on "+
			"tokenreviews and subjectaccessreviews, or set --metrics-endpoint-auth=false", zap.Error(err))
	}
}

// logRecovery logs the end of an outage whose start was logged.
func (g *Guard) logRecovery() {
	g.outage.mu.Lock()
	told := g.outage.isLogged
	g.outage.isLogged = false
	g.outage.mu.Unlock()
	if told {
		g.params.Log.Info("API server authorizes access to metrics again")
	}
}

// validTimes returns the time until the question is asked again, and the time that the answer is valid while nobody answers that.
func (a answer) validTimes() (fresh, outage time.Duration) {
	if a.status == http.StatusOK {
		return allowedFor, outageFor
	}
	return deniedFor, deniedFor
}

// bearerToken returns the token of an Authorization header, empty if it has none.
func bearerToken(header string) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// convertExtra converts the values to the type of the other API group.
func convertExtra(extras map[string]authenticationv1.ExtraValue) map[string]authorizationv1.ExtraValue {
	if len(extras) == 0 {
		return nil
	}
	same := make(map[string]authorizationv1.ExtraValue, len(extras))
	for name, values := range extras {
		same[name] = authorizationv1.ExtraValue(values)
	}
	return same
}
