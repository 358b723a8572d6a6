// Package ingressnginx is the admission webhook of ingress-nginx, for tests of what writes Ingresses. It is no data plane.
//
// The webhook refuses an Ingress of the controller's classes that
//
//	has the host and path of another Ingress, of any namespace, unless exactly one of the two is a canary
//	has a path of type Exact or Prefix that looks like an expression
//	has an annotation that ends in "-snippet"
//
// with the messages of ingress-nginx 1.15 (CheckIngress in internal/ingress/controller/controller.go). Two paths are the same
// if their text is, whatever their types are; a Prefix "/a" also has the path "/a/". Annotations are not validated otherwise,
// and no configuration of nginx is tested.
//
// A cluster with nodes runs it as a webhook (command webhook, path /ingress-nginx). An API server alone cannot call a webhook in
// the test's process, as it has a network of its own: there, Proxy stands in front of the API server and answers clients as the
// API server does whose webhook refuses an object.
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
	classByName     = "nginx" // value of the annotation that the controller answers to
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

// Review returns why the webhook refuses an Ingress, given as JSON, and nil if it admits it.
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
