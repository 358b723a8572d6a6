package routing

import (
	"errors"
	"fmt"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// statusFound is the status of a redirect without a status (302).
const statusFound = 302

// httpsPort is the port of a redirect without a port: that of its scheme.
const httpsPort = 443

var errRedirect = errors.New("filter RequestRedirect: OCI can only redirect all requests of an HTTP listener to HTTPS: the filter needs " +
	"scheme https without hostname and path, and its rule one match, PathPrefix /")

// checkFields returns an error if a rule has a field that OCI cannot obey. It returns the redirect of the rule, if there is one.
func checkFields(rule *gatewayv1.HTTPRouteRule) (*plan.Redirect, error) {
	switch {
	case rule.Timeouts != nil:
		return nil, errors.New("timeouts: OCI has one idle timeout for all requests of a listener")
	case rule.Retry != nil:
		return nil, errors.New("retry: OCI does not retry requests")
	case rule.SessionPersistence != nil:
		return nil, errors.New("sessionPersistence: configure it in the backend set")
	}
	for i := range rule.BackendRefs {
		if len(rule.BackendRefs[i].Filters) > 0 {
			return nil, fmt.Errorf("backendRefs[%d]: OCI has no filters for backends", i)
		}
	}
	var redirect *plan.Redirect
	for i := range rule.Filters {
		f := &rule.Filters[i]
		if f.Type != gatewayv1.HTTPRouteFilterRequestRedirect || len(rule.Filters) > 1 {
			return nil, fmt.Errorf("filter %.40s: OCI has filters for all requests of a listener only", f.Type)
		}
		var err error
		if redirect, err = newRedirect(rule, f.RequestRedirect); err != nil {
			return nil, err
		}
	}
	return redirect, nil
}

// newRedirect returns the redirect of a rule for all requests.
func newRedirect(rule *gatewayv1.HTTPRouteRule, f *gatewayv1.HTTPRequestRedirectFilter) (*plan.Redirect, error) {
	if f == nil || ptr.Deref(f.Scheme, "") != "https" || f.Hostname != nil || f.Path != nil || len(rule.BackendRefs) > 0 {
		return nil, errRedirect
	}
	matches := matchesOf(rule)
	kind, path := gatewayapi.PathOf(&matches[0])
	if len(matches) > 1 || kind != gatewayv1.PathMatchPathPrefix || path != "/" {
		return nil, errRedirect
	}
	if m := &matches[0]; len(m.Headers) > 0 || len(m.QueryParams) > 0 || m.Method != nil {
		return nil, errRedirect
	}
	return &plan.Redirect{Port: int(ptr.Deref(f.Port, httpsPort)), Code: ptr.Deref(f.StatusCode, statusFound)}, nil
}
