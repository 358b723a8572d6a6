package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/servingcert"
)

const (
	// path of the webhook.
	webhookPath = "/mutate-pods"
	// maxReview limits a request: the API server's limit of an object is 3 MiB, and a review can have two.
	maxReview = 8 << 20
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
}

// NewWebhook returns a Webhook. Without an address, it does nothing.
func NewWebhook(address, certificates string, log *zap.Logger) *Webhook {
	return &Webhook{address: address, certificates: certificates, log: log.Named("webhook")}
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
	mux := http.NewServeMux()
	mux.Handle("POST "+webhookPath, w)
	server := &http.Server{
		Addr: w.address, Handler: http.TimeoutHandler(mux, reviewTimeout, ""), TLSConfig: certificate.TLS(servingcert.Options{}), ReadTimeout: reviewTimeout,
		WriteTimeout: 2 * reviewTimeout, MaxHeaderBytes: 1 << 16, ErrorLog: zap.NewStdLog(w.log),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServeTLS("", "") }()
	reloading, stop := context.WithCancel(ctx)
	defer stop()
	reloaded := make(chan struct{})
	go func() {
		defer close(reloaded)
		certificate.Run(reloading)
	}()
	defer func() { <-reloaded }()
	defer stop()
	w.log.Info("Serving webhook", zap.String(logging.KeyAddress, w.address))
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
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxReview))
	if err != nil {
		http.Error(rw, "read request: "+err.Error(), http.StatusBadRequest)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		http.Error(rw, "the request is not an AdmissionReview", http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if patch := patchPod(review.Request.Object.Raw); patch != nil {
		kind := admissionv1.PatchTypeJSONPatch
		answer.Patch, answer.PatchType = patch, &kind
	}
	review.Request, review.Response = nil, answer
	rw.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(rw).Encode(&review); err != nil {
		w.log.Debug("Client of the webhook left", zap.Error(err))
	}
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
