package controller

import (
	"errors"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// webhookPattern matches the messages of API servers about admission webhooks that deny a request, or that cannot be called. No other part
// of the error distinguishes them from errors of the API server itself.
var webhookPattern = regexp.MustCompile(`admission webhook "([^"]{1,253})" denied the request|failed calling webhook "([^"]{1,253})"`)

// webhookOf returns the name of the admission webhook that refused a request.
func webhookOf(err error) (name string, found bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", false
	}
	parts := webhookPattern.FindStringSubmatch(status.Status().Message)
	if parts == nil {
		return "", false
	}
	return parts[1] + parts[2], true
}
