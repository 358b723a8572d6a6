package ociapi

import (
	"context"

	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
)

// sends are the operations of steps. Their request types have no common form, so each one is written out.
var sends = map[string]sender{
	"CreateListener": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, body loadbalancer.CreateListenerDetails, token *string) (loadbalancer.CreateListenerResponse, error) {
		return c.CreateListener(ctx, loadbalancer.CreateListenerRequest{
			LoadBalancerId: &w.loadBalancer, CreateListenerDetails: body, OpcRetryToken: token, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.CreateListenerResponse) *string { return r.OpcWorkRequestId }),
	"UpdateListener": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, body loadbalancer.UpdateListenerDetails, token *string) (loadbalancer.UpdateListenerResponse, error) {
		return c.UpdateListener(ctx, loadbalancer.UpdateListenerRequest{
			LoadBalancerId: &w.loadBalancer, ListenerName: &w.set, UpdateListenerDetails: body, OpcRetryToken: token, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.UpdateListenerResponse) *string { return r.OpcWorkRequestId }),
	"DeleteListener": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, _ any, _ *string) (loadbalancer.DeleteListenerResponse, error) {
		return c.DeleteListener(ctx, loadbalancer.DeleteListenerRequest{
			LoadBalancerId: &w.loadBalancer, ListenerName: &w.set, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.DeleteListenerResponse) *string { return r.OpcWorkRequestId }),
	"CreateRoutingPolicy": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, body loadbalancer.CreateRoutingPolicyDetails, token *string) (loadbalancer.CreateRoutingPolicyResponse, error) {
		return c.CreateRoutingPolicy(ctx, loadbalancer.CreateRoutingPolicyRequest{
			LoadBalancerId: &w.loadBalancer, CreateRoutingPolicyDetails: body, OpcRetryToken: token, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.CreateRoutingPolicyResponse) *string { return r.OpcWorkRequestId }),
	"UpdateRoutingPolicy": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, body loadbalancer.UpdateRoutingPolicyDetails, token *string) (loadbalancer.UpdateRoutingPolicyResponse, error) {
		return c.UpdateRoutingPolicy(ctx, loadbalancer.UpdateRoutingPolicyRequest{
			LoadBalancerId: &w.loadBalancer, RoutingPolicyName: &w.set, UpdateRoutingPolicyDetails: body, OpcRetryToken: token, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.UpdateRoutingPolicyResponse) *string { return r.OpcWorkRequestId }),
	"DeleteRoutingPolicy": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, _ any, _ *string) (loadbalancer.DeleteRoutingPolicyResponse, error) {
		return c.DeleteRoutingPolicy(ctx, loadbalancer.DeleteRoutingPolicyRequest{
			LoadBalancerId: &w.loadBalancer, RoutingPolicyName: &w.set, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.DeleteRoutingPolicyResponse) *string { return r.OpcWorkRequestId }),
	"CreateRuleSet": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, body loadbalancer.CreateRuleSetDetails, token *string) (loadbalancer.CreateRuleSetResponse, error) {
		return c.CreateRuleSet(ctx, loadbalancer.CreateRuleSetRequest{
			LoadBalancerId: &w.loadBalancer, CreateRuleSetDetails: body, OpcRetryToken: token, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.CreateRuleSetResponse) *string { return r.OpcWorkRequestId }),
	"UpdateRuleSet": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, body loadbalancer.UpdateRuleSetDetails, token *string) (loadbalancer.UpdateRuleSetResponse, error) {
		return c.UpdateRuleSet(ctx, loadbalancer.UpdateRuleSetRequest{
			LoadBalancerId: &w.loadBalancer, RuleSetName: &w.set, UpdateRuleSetDetails: body, OpcRetryToken: token, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.UpdateRuleSetResponse) *string { return r.OpcWorkRequestId }),
	"DeleteRuleSet": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, _ any, _ *string) (loadbalancer.DeleteRuleSetResponse, error) {
		return c.DeleteRuleSet(ctx, loadbalancer.DeleteRuleSetRequest{
			LoadBalancerId: &w.loadBalancer, RuleSetName: &w.set, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.DeleteRuleSetResponse) *string { return r.OpcWorkRequestId }),
	"CreateHostname": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, body loadbalancer.CreateHostnameDetails, token *string) (loadbalancer.CreateHostnameResponse, error) {
		return c.CreateHostname(ctx, loadbalancer.CreateHostnameRequest{
			LoadBalancerId: &w.loadBalancer, CreateHostnameDetails: body, OpcRetryToken: token, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.CreateHostnameResponse) *string { return r.OpcWorkRequestId }),
	"UpdateHostname": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, body loadbalancer.UpdateHostnameDetails, token *string) (loadbalancer.UpdateHostnameResponse, error) {
		return c.UpdateHostname(ctx, loadbalancer.UpdateHostnameRequest{
			LoadBalancerId: &w.loadBalancer, Name: &w.set, UpdateHostnameDetails: body, OpcRetryToken: token, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.UpdateHostnameResponse) *string { return r.OpcWorkRequestId }),
	"DeleteHostname": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, _ any, _ *string) (loadbalancer.DeleteHostnameResponse, error) {
		return c.DeleteHostname(ctx, loadbalancer.DeleteHostnameRequest{
			LoadBalancerId: &w.loadBalancer, Name: &w.set, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.DeleteHostnameResponse) *string { return r.OpcWorkRequestId }),
	"CreateCertificate": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, body loadbalancer.CreateCertificateDetails, token *string) (loadbalancer.CreateCertificateResponse, error) {
		return c.CreateCertificate(ctx, loadbalancer.CreateCertificateRequest{
			LoadBalancerId: &w.loadBalancer, CreateCertificateDetails: body, OpcRetryToken: token, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.CreateCertificateResponse) *string { return r.OpcWorkRequestId }),
	"DeleteCertificate": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, _ any, _ *string) (loadbalancer.DeleteCertificateResponse, error) {
		return c.DeleteCertificate(ctx, loadbalancer.DeleteCertificateRequest{
			LoadBalancerId: &w.loadBalancer, CertificateName: &w.set, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.DeleteCertificateResponse) *string { return r.OpcWorkRequestId }),
	"CreateBackendSet": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, body loadbalancer.CreateBackendSetDetails, token *string) (loadbalancer.CreateBackendSetResponse, error) {
		return c.CreateBackendSet(ctx, loadbalancer.CreateBackendSetRequest{
			LoadBalancerId: &w.loadBalancer, CreateBackendSetDetails: body, OpcRetryToken: token, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.CreateBackendSetResponse) *string { return r.OpcWorkRequestId }),
	"DeleteBackendSet": operation(func(ctx context.Context, c *loadbalancer.LoadBalancerClient, w *Write, _ any, _ *string) (loadbalancer.DeleteBackendSetResponse, error) {
		return c.DeleteBackendSet(ctx, loadbalancer.DeleteBackendSetRequest{
			LoadBalancerId: &w.loadBalancer, BackendSetName: &w.set, IfMatch: &w.etag, RequestMetadata: metadata(),
		})
	}, func(r loadbalancer.DeleteBackendSetResponse) *string { return r.OpcWorkRequestId }),
}
