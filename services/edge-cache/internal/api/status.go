package api

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/upstream"
	"fairlead.dev/services/edge-cache/internal/wire"
)

// retrySeconds is the pause that clients are asked for. Clients of Kubernetes double it themselves.
const retrySeconds = 1

func statusError(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

func invalidOptions(errs field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", errs)
}

func forbiddenError(format string, args ...any) error {
	return statusError(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf(format, args...))
}

func notFoundError(r request) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: r.group, Resource: r.resource}, r.name)
}

func unavailableError(format string, args ...any) error {
	return retryError(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, fmt.Sprintf(format, args...))
}

func tooManyError(format string, args ...any) error {
	return retryError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, fmt.Sprintf(format, args...))
}

func retryError(code int32, reason metav1.StatusReason, message string) error {
	err := statusError(code, reason, message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retrySeconds}
	return err
}

// versionTooLargeError is the answer to a version that is not reached in time.
func versionTooLargeError(requested, current uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", requested, current), retrySeconds)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

func expiredError() error {
	return apierrors.NewResourceExpired("The resourceVersion is too old: list again")
}

// toStatus returns the status of an error.
func toStatus(err error) metav1.Status {
	var fromUpstream *upstream.StatusError
	var api apierrors.APIStatus
	var status metav1.Status
	switch {
	case errors.As(err, &fromUpstream):
		status = fromUpstream.Status
	case errors.As(err, &api):
		status = api.Status()
	case errors.Is(err, store.ErrExpired):
		return toStatus(expiredError())
	case errors.Is(err, store.ErrNotSynced):
		return toStatus(unavailableError("edge-cache: %v", err))
	default:
		status = statusError(http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error()).ErrStatus
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Status == "" {
		status.Status = metav1.StatusFailure
	}
	return status
}

// writeError answers with a Status, in protobuf only if the client takes nothing else.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	status := toStatus(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	body, contentType := encodeStatus(status, errorFormat(r.Header))
	setContentType(w, contentType)
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body) //nolint:gosec // an encoded Status, with its content type
}

func encodeStatus(status metav1.Status, format wire.Format) (body []byte, contentType string) {
	raw := marshal(format, &status)
	if format == wire.Protobuf {
		return wire.EncodeEnvelope("v1", "Status", raw), protobufType
	}
	return append(raw, '\n'), jsonType
}
