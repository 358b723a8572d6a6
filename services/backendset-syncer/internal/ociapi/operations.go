package ociapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/oracle/oci-go-sdk/v65/common"

	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// nouns are the kinds of objects in the names of operations.
var nouns = map[lbrecord.Kind]string{
	lbrecord.Listener: "Listener", lbrecord.RoutingPolicy: "RoutingPolicy", lbrecord.RuleSet: "RuleSet", lbrecord.Hostname: "Hostname",
	lbrecord.Certificate: "Certificate", lbrecord.BackendSet: "BackendSet",
}

// methods are the methods of HTTP.
var methods = map[lblayout.Action]string{
	lblayout.Create: http.MethodPost, lblayout.Update: http.MethodPut, lblayout.Delete: http.MethodDelete,
}

// path returns the path of the object of a write, or of the collection that gets it.
func (w *Write) path() string {
	path, name := fmt.Sprintf("/loadBalancers/%s/%s", w.loadBalancer, w.kind), w.object
	if w.backend != "" {
		path, name = path+"/"+w.object+"/backends", w.backend
	}
	if w.action == lblayout.Create {
		return path
	}
	return path + "/" + name
}

// The requests of writes. The SDK has a type for each operation, with the same fields.
type (
	deleteRequest struct {
		IfMatch   *string `contributesTo:"header" name:"if-match"`
		RequestID *string `contributesTo:"header" name:"opc-request-id"` // the SDK chooses one
	}
	putRequest struct {
		IfMatch    *string `contributesTo:"header" name:"if-match"`
		RequestID  *string `contributesTo:"header" name:"opc-request-id"`
		RetryToken *string `contributesTo:"header" name:"opc-retry-token"`
		Body       any     `contributesTo:"body"`
	}
)

// newRequest returns the request of a write.
func (w *Write) newRequest(token string) (http.Request, error) {
	var content any = deleteRequest{IfMatch: &w.etag}
	if w.action != lblayout.Delete {
		content = putRequest{IfMatch: &w.etag, RetryToken: &token, Body: w.body}
	}
	if body, ok := w.body.(interface{ ValidateEnumValue() (bool, error) }); ok {
		if _, err := body.ValidateEnumValue(); err != nil {
			return http.Request{}, err
		}
	}
	noRetries := map[string]string{"opc-client-retries": "false"}
	return common.MakeDefaultHTTPRequestWithTaggedStructAndExtraHeaders(methods[w.action], w.path(), content, noRetries)
}

// receipt is the answer to a write.
type receipt struct{ *http.Response }

// HTTPResponse implements answer.
func (r receipt) HTTPResponse() *http.Response { return r.Response }

// SendWrite sends a write if the load balancer has not changed since it was read. It returns the id of the work request.
func (c *Client) SendWrite(ctx context.Context, w *Write, token string) (string, error) {
	operation := w.Operation()
	send := func(client sdkClient, ctx context.Context, w *Write) (receipt, error) {
		request, err := w.newRequest(token)
		if err != nil {
			return receipt{}, err
		}
		response, err := client.CallWithServiceAndOperationName( //nolint:bodyclose // the next line closes it
			ctx, &request, "loadBalancer", operation)
		common.CloseBodyIfValid(response)
		return receipt{response}, err
	}
	got, err := callAPI(ctx, c, call{operation, High}, send, w)
	if err != nil {
		return "", err
	}
	id := got.Header.Get("opc-work-request-id")
	if id == "" {
		return "", &Error{Class: Unreachable, Operation: operation, Message: "the answer names no work request"}
	}
	return id, nil
}
