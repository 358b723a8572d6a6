package api

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/wire"
)

// request is what a path and a method of the Kubernetes API ask for.
type request struct {
	verb                        string // get, list, watch, create, update, patch, delete, deletecollection
	group, version              string
	namespace                   string
	resource, name, subresource string
	isResource, isCollection    bool
}

// resourcePath returns group/version/resource as package allowlist writes it.
func (r request) resourcePath() string {
	return allowlist.Resource{Group: r.group, Version: r.version, Name: r.resource}.Path()
}

// withSubresource returns resource or resource/subresource.
func (r request) withSubresource() string {
	if r.subresource == "" {
		return r.resource
	}
	return r.resource + "/" + r.subresource
}

func (r request) objectKey() string {
	return wire.Meta{Namespace: r.namespace, Name: r.name}.ObjectKey()
}

// parseRequest returns the request of a method and a path. Paths that name no resource have isResource false. watch is the query parameter.
func parseRequest(method, path string, watch bool) request { //nolint:revive // a property of the request, not a choice
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var r request
	switch {
	case len(parts) > 2 && parts[0] == "api":
		r.version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		r.group, r.version, parts = parts[1], parts[2], parts[3:]
	default:
		return request{}
	}
	// A proxy before the API server may resolve dots to a path that is not on the allow-list.
	dots := func(part string) bool { return part == "" || part == "." || part == ".." }
	if slices.ContainsFunc(parts, dots) || len(parts) > 5 {
		return request{}
	}
	r.parseNames(parts)
	r.verb = cmp.Or(objectVerbs[method], strings.ToLower(method))
	if r.isCollection {
		r.verb = cmp.Or(collectionVerbs[method], r.verb)
	}
	if r.verb == "list" && watch {
		r.verb = "watch"
	}
	return r
}

// Verbs by method, where they differ from the name of the method. A list can be a watch.
var (
	objectVerbs     = map[string]string{http.MethodHead: "get", http.MethodPost: "create", http.MethodPut: "update"}
	collectionVerbs = map[string]string{http.MethodGet: "list", http.MethodHead: "list", http.MethodDelete: "deletecollection"}
)

// parseNames reads what comes after the version.
func (r *request) parseNames(parts []string) {
	r.isResource = true
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		r.namespace, parts = parts[1], parts[2:]
	}
	r.resource = parts[0]
	if len(parts) > 1 {
		r.name = parts[1]
	}
	if len(parts) > 2 {
		r.subresource = strings.Join(parts[2:], "/")
	}
	r.isCollection = r.name == ""
}
