package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/servingcert"
)

const (
	// path of the webhook.
	webhookPath = "/mutate-pods"
	// maxReview limits a request: the API server takes objects of 3 MiB at most.
	maxReview = 4 << 20
	// reviewBudget limits the sizes of all requests in progress, of which each counts as leastReview at least. A request takes a few
	// times its size while it is decoded.
	reviewBudget = 16 << 20
	leastReview  = 64 << 10
	// maxConnections limits the connections. Each API server has one, or a few.
	maxConnections = 256
	// reviewTimeout limits a request. The API server waits for 10 s by default.
	reviewTimeout = 10 * time.Second
	// retryInterval is the time until the webhook tries again after a failure: Secrets of cert-manager appear within seconds.
	retryInterval = 5 * time.Second
	// reloadInterval is the time between two reads of the certificate.
	reloadInterval = time.Minute
)

// Webhook adds the readiness gate to new pods. Which pods, is up to the MutatingWebhookConfiguration, whose failure policy should be
// Ignore: pods without the gate only miss the wait for load balancers.
type Webhook struct {
	address, certificates string
	log                   *zap.Logger
	listen                func(ctx context.Context, network, address string) (net.Listener, error)
	meter                 meter
	budget                *semaphore.Weighted // bytes of requests in progress
	certificate           atomic.Pointer[servingcert.Store]
}

// meter counts reviews by their result.
type meter interface{ Review(result string) }

// Results of reviews.
const (
	resultGated     = "gated"
	resultUnchanged = "unchanged"
	resultRefused   = "refused"
)

// NewWebhook returns a Webhook. Without an address, it does nothing.
func NewWebhook(address, certificates string, m meter, log *zap.Logger) *Webhook {
	return &Webhook{address: address, certificates: certificates, meter: m, log: log.Named("webhook"), listen: new(net.ListenConfig).Listen, budget: semaphore.NewWeighted(reviewBudget)}
}

// Expiry returns when the certificate in use expires, zero if none is in use.
func (w *Webhook) Expiry() time.Time {
	if c := w.certificate.Load(); c != nil {
		return c.Expiry()
	}
	return time.Time{}
}

// Run serves until ctx ends. All replicas do.
func (w *Webhook) Run(ctx context.Context) {
	if w.address == "" {
		return
	}
	for {
		err := w.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		w.log.Warn("Webhook does not work: new pods get no readiness gates. Retrying", zap.Error(err))
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryInterval):
		}
	}
}

func (w *Webhook) serve(ctx context.Context) error {
	certificate, err := servingcert.Load(servingcert.Params{Log: w.log, Dir: w.certificates, Interval: reloadInterval})
	if err != nil {
		return fmt.Errorf("load certificate: %w", err)
	}
	listener, err := w.listen(ctx, "tcp", w.address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	w.certificate.Store(certificate)
	mux := http.NewServeMux()
	mux.Handle("POST "+webhookPath, w)
	server := &http.Server{
		Handler: http.TimeoutHandler(mux, reviewTimeout, ""), TLSConfig: certificate.TLS(servingcert.Options{}), ReadTimeout: reviewTimeout,
		WriteTimeout: 2 * reviewTimeout, MaxHeaderBytes: 1 << 16, ErrorLog: zap.NewStdLog(w.log),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(netutil.LimitListener(listener, maxConnections), "", "") }()
	reloading, stop := context.WithCancel(ctx)
	defer stop()
	reloaded := make(chan struct{})
	go func() {
		defer close(reloaded)
		certificate.Run(reloading)
	}()
	defer func() { <-reloaded }()
	defer stop()
	w.log.Info("Serving webhook", zap.Stringer(logging.KeyAddress, listener.Addr()))
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
	defer cancel()
	if err := server.Shutdown(draining); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP answers an AdmissionReview.
func (w *Webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	size := max(r.ContentLength, leastReview)
	if r.ContentLength < 0 || size > maxReview {
		w.refuse(rw, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request must have a Content-Length of at most %d", maxReview))
		return
	}
	if err := w.budget.Acquire(r.Context(), size); err != nil {
		w.refuse(rw, http.StatusServiceUnavailable, "too many requests are in progress")
		return
	}
	defer w.budget.Release(size)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.refuse(rw, http.StatusBadRequest, "read request: "+err.Error())
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		w.refuse(rw, http.StatusBadRequest, "the request is not an AdmissionReview")
		return
	}
	result := resultUnchanged
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if patch := patchPod(review.Request.Object.Raw); patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		answer.Patch, answer.PatchType, result = patch, &kind, resultGated
	}
	w.meter.Review(result)
	review.Request, review.Response = nil, answer
	rw.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(rw).Encode(&review); err != nil {
		w.log.Debug("Client of the webhook left", zap.Error(err))
	}
}

func (w *Webhook) refuse(rw http.ResponseWriter, status int, problem string) {
	w.meter.Review(resultRefused)
	http.Error(rw, problem, status)
}

// patchPod returns the patch that adds the gate to a pod, nil if the pod has it, or is not a pod.
func patchPod(raw []byte) []byte {
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil || pod.Kind != "" && pod.Kind != "Pod" {
		return nil
	}
	gate := corev1.PodReadinessGate{ConditionType: v1alpha1.ReadinessGate}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{{Op: "add", Path: "/spec/readinessGates", Value: []corev1.PodReadinessGate{gate}}}
	for _, g := range pod.Spec.ReadinessGates {
		if g.ConditionType == v1alpha1.ReadinessGate {
			return nil
		}
		patch = []operation{{Op: "add", Path: "/spec/readinessGates/-", Value: gate}}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return nil // unreachable: it consists of strings
	}
	return text
}
