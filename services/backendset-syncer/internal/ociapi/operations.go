package ociapi

import (
	"context"

	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
)

// senders are the operations of steps. Their request types have no common form, so each one is written out.
var senders = map[string]sender{
	"CreateListener": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, body loadbalancer.CreateListenerDetails, token *string,
	) (loadbalancer.CreateListenerResponse, error) {
		return c.CreateListener(ctx, loadbalancer.CreateListenerRequest{
			LoadBalancerId: &w.loadBalancer, CreateListenerDetails: body, OpcRetryToken: token, IfMatch: &w.etag,
			RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.CreateListenerResponse) *string { return r.OpcWorkRequestId }),
	"UpdateListener": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, body loadbalancer.UpdateListenerDetails, token *string,
	) (loadbalancer.UpdateListenerResponse, error) {
		return c.UpdateListener(ctx, loadbalancer.UpdateListenerRequest{
			LoadBalancerId: &w.loadBalancer, ListenerName: &w.set, UpdateListenerDetails: body, OpcRetryToken: token,
			IfMatch: &w.etag, RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.UpdateListenerResponse) *string { return r.OpcWorkRequestId }),
	"DeleteListener": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, _ any, _ *string,
	) (loadbalancer.DeleteListenerResponse, error) {
		return c.DeleteListener(ctx, loadbalancer.DeleteListenerRequest{
			LoadBalancerId: &w.loadBalancer, ListenerName: &w.set, IfMatch: &w.etag, RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.DeleteListenerResponse) *string { return r.OpcWorkRequestId }),
	"CreateRoutingPolicy": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, body loadbalancer.CreateRoutingPolicyDetails, token *string,
	) (loadbalancer.CreateRoutingPolicyResponse, error) {
		return c.CreateRoutingPolicy(ctx, loadbalancer.CreateRoutingPolicyRequest{
			LoadBalancerId: &w.loadBalancer, CreateRoutingPolicyDetails: body, OpcRetryToken: token, IfMatch: &w.etag,
			RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.CreateRoutingPolicyResponse) *string { return r.OpcWorkRequestId }),
	"UpdateRoutingPolicy": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, body loadbalancer.UpdateRoutingPolicyDetails, token *string,
	) (loadbalancer.UpdateRoutingPolicyResponse, error) {
		return c.UpdateRoutingPolicy(ctx, loadbalancer.UpdateRoutingPolicyRequest{
			LoadBalancerId: &w.loadBalancer, RoutingPolicyName: &w.set, UpdateRoutingPolicyDetails: body, OpcRetryToken: token,
			IfMatch: &w.etag, RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.UpdateRoutingPolicyResponse) *string { return r.OpcWorkRequestId }),
	"DeleteRoutingPolicy": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, _ any, _ *string,
	) (loadbalancer.DeleteRoutingPolicyResponse, error) {
		return c.DeleteRoutingPolicy(ctx, loadbalancer.DeleteRoutingPolicyRequest{
			LoadBalancerId: &w.loadBalancer, RoutingPolicyName: &w.set, IfMatch: &w.etag, RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.DeleteRoutingPolicyResponse) *string { return r.OpcWorkRequestId }),
	"CreateRuleSet": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, body loadbalancer.CreateRuleSetDetails, token *string,
	) (loadbalancer.CreateRuleSetResponse, error) {
		return c.CreateRuleSet(ctx, loadbalancer.CreateRuleSetRequest{
			LoadBalancerId: &w.loadBalancer, CreateRuleSetDetails: body, OpcRetryToken: token, IfMatch: &w.etag,
			RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.CreateRuleSetResponse) *string { return r.OpcWorkRequestId }),
	"UpdateRuleSet": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, body loadbalancer.UpdateRuleSetDetails, token *string,
	) (loadbalancer.UpdateRuleSetResponse, error) {
		return c.UpdateRuleSet(ctx, loadbalancer.UpdateRuleSetRequest{
			LoadBalancerId: &w.loadBalancer, RuleSetName: &w.set, UpdateRuleSetDetails: body, OpcRetryToken: token,
			IfMatch: &w.etag, RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.UpdateRuleSetResponse) *string { return r.OpcWorkRequestId }),
	"DeleteRuleSet": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, _ any, _ *string,
	) (loadbalancer.DeleteRuleSetResponse, error) {
		return c.DeleteRuleSet(ctx, loadbalancer.DeleteRuleSetRequest{
			LoadBalancerId: &w.loadBalancer, RuleSetName: &w.set, IfMatch: &w.etag, RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.DeleteRuleSetResponse) *string { return r.OpcWorkRequestId }),
	"CreateHostname": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, body loadbalancer.CreateHostnameDetails, token *string,
	) (loadbalancer.CreateHostnameResponse, error) {
		return c.CreateHostname(ctx, loadbalancer.CreateHostnameRequest{
			LoadBalancerId: &w.loadBalancer, CreateHostnameDetails: body, OpcRetryToken: token, IfMatch: &w.etag,
			RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.CreateHostnameResponse) *string { return r.OpcWorkRequestId }),
	"UpdateHostname": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, body loadbalancer.UpdateHostnameDetails, token *string,
	) (loadbalancer.UpdateHostnameResponse, error) {
		return c.UpdateHostname(ctx, loadbalancer.UpdateHostnameRequest{
			LoadBalancerId: &w.loadBalancer, Name: &w.set, UpdateHostnameDetails: body, OpcRetryToken: token,
			IfMatch: &w.etag, RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.UpdateHostnameResponse) *string { return r.OpcWorkRequestId }),
	"DeleteHostname": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, _ any, _ *string,
	) (loadbalancer.DeleteHostnameResponse, error) {
		return c.DeleteHostname(ctx, loadbalancer.DeleteHostnameRequest{
			LoadBalancerId: &w.loadBalancer, Name: &w.set, IfMatch: &w.etag, RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.DeleteHostnameResponse) *string { return r.OpcWorkRequestId }),
	"CreateCertificate": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, body loadbalancer.CreateCertificateDetails, token *string,
	) (loadbalancer.CreateCertificateResponse, error) {
		return c.CreateCertificate(ctx, loadbalancer.CreateCertificateRequest{
			LoadBalancerId: &w.loadBalancer, CreateCertificateDetails: body, OpcRetryToken: token, IfMatch: &w.etag,
			RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.CreateCertificateResponse) *string { return r.OpcWorkRequestId }),
	"DeleteCertificate": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, _ any, _ *string,
	) (loadbalancer.DeleteCertificateResponse, error) {
		return c.DeleteCertificate(ctx, loadbalancer.DeleteCertificateRequest{
			LoadBalancerId: &w.loadBalancer, CertificateName: &w.set, IfMatch: &w.etag, RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.DeleteCertificateResponse) *string { return r.OpcWorkRequestId }),
	"CreateBackendSet": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, body loadbalancer.CreateBackendSetDetails, token *string,
	) (loadbalancer.CreateBackendSetResponse, error) {
		return c.CreateBackendSet(ctx, loadbalancer.CreateBackendSetRequest{
			LoadBalancerId: &w.loadBalancer, CreateBackendSetDetails: body, OpcRetryToken: token, IfMatch: &w.etag,
			RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.CreateBackendSetResponse) *string { return r.OpcWorkRequestId }),
	"DeleteBackendSet": newSender(func(
		ctx context.Context, c *sdkClient, w *Write, _ any, _ *string,
	) (loadbalancer.DeleteBackendSetResponse, error) {
		return c.DeleteBackendSet(ctx, loadbalancer.DeleteBackendSetRequest{
			LoadBalancerId: &w.loadBalancer, BackendSetName: &w.set, IfMatch: &w.etag, RequestMetadata: noRetries(),
		})
	}, func(r loadbalancer.DeleteBackendSetResponse) *string { return r.OpcWorkRequestId }),
}
