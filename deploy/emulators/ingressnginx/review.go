// Package ingressnginx emulates the admission webhook of ingress-nginx, for tests of controllers that write Ingresses. It does
// not serve traffic.
//
// The webhook refuses an Ingress of the controller's classes that
//
//	has the host and path of another Ingress in any namespace, if both are canaries or neither has the canary annotation
//	has a path of type Exact or Prefix that looks like a regular expression
//	has an annotation that ends in "-snippet"
//
// The messages are those of ingress-nginx 1.15 (CheckIngress in internal/ingress/controller/controller.go). Two paths with the
// same text are equal, even if their types differ; a Prefix "/a" also covers the path "/a/". The webhook does not validate other
// annotations, and does not test the configuration of nginx.
//
// In a cluster with nodes, command webhook serves it at the path /ingress-nginx. An API server without nodes has its own network
// and cannot call a webhook in the test's process. There, Proxy stands in front of the API server, and answers clients like an
// API server whose webhook refuses an object.
package ingressnginx

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	controllerName  = "k8s.io/ingress-nginx"
	annotationClass = "kubernetes.io/ingress.class"
	classByName     = "nginx" // value of the annotation that selects the controller
)

// Reviewer decides whether the webhook admits an Ingress. It reads the other Ingresses from the API server.
type Reviewer struct {
	client kubernetes.Interface
}

// NewReviewer returns a Reviewer for an API server.
func NewReviewer(config *rest.Config) (*Reviewer, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return &Reviewer{client: client}, nil
}

// Review returns the reason why the webhook refuses an Ingress, given as JSON, or nil if the webhook admits the Ingress.
func (r *Reviewer) Review(ctx context.Context, raw []byte) error {
	in := &networkingv1.Ingress{}
	if err := json.Unmarshal(raw, in); err != nil {
		return fmt.Errorf("decode Ingress: %w", err)
	}
	classes, err := r.client.NetworkingV1().IngressClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list IngressClasses: %w", err)
	}
	if !serves(classes.Items, in) {
		return nil
	}
	all, err := r.client.NetworkingV1().Ingresses(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Ingresses: %w", err)
	}
	var others []*networkingv1.Ingress
	for i := range all.Items {
		if serves(classes.Items, &all.Items[i]) {
			others = append(others, &all.Items[i])
		}
	}
	return Check(in, others)
}

// serves reports whether the controller serves an Ingress, by its class or the older annotation.
func serves(classes []networkingv1.IngressClass, in *networkingv1.Ingress) bool {
	if name := in.Spec.IngressClassName; name != nil {
		return slices.ContainsFunc(classes, func(c networkingv1.IngressClass) bool {
			return c.Name == *name && c.Spec.Controller == controllerName
		})
	}
	return in.Annotations[annotationClass] == classByName
}
