package readinessgate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/run"
	"fairlead.dev/pkg/servingcert"
)

const (
	// path of the webhook.
	webhookPath = "/mutate-pods"
	// maxReview limits a request: the API server takes objects of 3 MiB at most.
	maxReview = 4 << 20
	// maxBytes limits the bodies of all requests in progress. A request takes up to three times its size while it is decoded.
	maxBytes = 16 << 20
	// maxWaiting limits the connections without a request, and maxReviews the requests in progress. An API server has a few: it is
	// displaced only by more addresses than these.
	maxWaiting, maxReviews = 256, 256
	// headerTimeout limits the time of a handshake, and of the headers of a request. The chart lets the API server wait as long for the
	// answer.
	headerTimeout = 2 * time.Second
	// maxHeader limits the size of headers: those of the API server have a few hundred bytes. net/http adds 4 KiB.
	maxHeader = 4 << 10
	// reviewTimeout limits a request, and its answer: the API server waits for 30 s at most, and usually for less.
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
	certificate           atomic.Pointer[servingcert.Store]
}

// meter counts reviews by their result.
type meter interface{ CountReview(result string) }

// Results of reviews.
const (
	resultGated     = "gated"
	resultUnchanged = "unchanged"
	resultRefused   = "refused"
)

// NewWebhook returns a Webhook. Without an address, it does nothing.
func NewWebhook(address, certificates string, m meter, log *zap.Logger) *Webhook {
	return &Webhook{address: address, certificates: certificates, meter: m, log: log.Named("webhook"), listen: new(net.ListenConfig).Listen}
}

// CertificateExpiry returns when the certificate in use expires, zero if none is in use.
func (w *Webhook) CertificateExpiry() time.Time {
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
	run.UntilCanceled(ctx, retryInterval, func() error { return w.serveReviews(ctx) }, func(err error) {
		w.log.Warn("Webhook does not work: new pods get no readiness gates. Retrying", zap.Error(err))
	})
}

func (w *Webhook) serveReviews(ctx context.Context) error {
	errorLog, err := zap.NewStdLogAt(w.log, zap.DebugLevel) // of handshakes and requests, which any client can cause
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
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
	limiter := connlimit.New(connlimit.Limits{Waiting: maxWaiting, Requests: maxReviews, Bytes: maxBytes})
	server := &http.Server{
		Handler: limiter.Requests(mux), TLSConfig: certificate.TLS(servingcert.Options{}), ReadHeaderTimeout: headerTimeout,
		ReadTimeout: reviewTimeout, WriteTimeout: reviewTimeout, MaxHeaderBytes: maxHeader, ErrorLog: errorLog,
	}
	limiter.Attach(server)
	reloading, stop := context.WithCancel(ctx)
	var reload sync.WaitGroup
	reload.Go(func() { certificate.Run(reloading) })
	defer reload.Wait()
	defer stop()
	w.log.Info("Serving webhook", zap.Stringer(logging.KeyAddress, listener.Addr()))
	return httpserver.Serve(ctx, server, limiter.Listener(listener), reviewTimeout)
}

// request is the part of an AdmissionReview that is read. The rest could take many times its size when it is decoded.
type request struct {
	metav1.TypeMeta `json:",inline"`

	Request *struct {
		UID    types.UID       `json:"uid"`
		Object json.RawMessage `json:"object"`
	} `json:"request"`
}

// ServeHTTP answers an AdmissionReview.
func (w *Webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxReview))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		w.refuseReview(rw, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes", maxReview))
		return
	}
	if err != nil {
		w.refuseReview(rw, http.StatusBadRequest, "read request: "+err.Error())
		return
	}
	var review request
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		w.refuseReview(rw, http.StatusBadRequest, "the request is not an AdmissionReview")
		return
	}
	result := resultUnchanged
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if patch := patchPod(review.Request.Object); patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		answer.Patch, answer.PatchType, result = patch, &kind, resultGated
	}
	w.meter.CountReview(result)
	rw.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(rw).Encode(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: answer}); err != nil {
		w.log.Debug("Client of the webhook left", zap.Error(err))
	}
}

func (w *Webhook) refuseReview(rw http.ResponseWriter, status int, problem string) {
	w.meter.CountReview(resultRefused)
	http.Error(rw, problem, status)
}

// patchPod returns the patch that adds the gate to a pod, nil if the pod has it, or is not a pod.
func patchPod(raw []byte) []byte {
	var pod *struct {
		Kind string `json:"kind"`
		Spec struct {
			ReadinessGates []corev1.PodReadinessGate `json:"readinessGates"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &pod); err != nil || pod == nil || pod.Kind != "" && pod.Kind != "Pod" {
		return nil
	}
	gate := corev1.PodReadinessGate{ConditionType: v1alpha1.ReadinessGate}
	patch := map[string]any{"op": "add", "path": "/spec/readinessGates", "value": []corev1.PodReadinessGate{gate}}
	for _, g := range pod.Spec.ReadinessGates {
		if g.ConditionType == v1alpha1.ReadinessGate {
			return nil
		}
		patch["path"], patch["value"] = "/spec/readinessGates/-", gate
	}
	text, err := json.Marshal([]any{patch})
	if err != nil {
		return nil // unreachable: it consists of strings
	}
	return text
}
