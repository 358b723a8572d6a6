// Package envoytest is Envoy's side of an ext_proc stream, for tests. A Gateway checks the messages to and from the picker.
// It refuses every reply that Envoy would refuse, and some that Envoy would accept. It uses only Envoy's generated code, and
// none of the picker's.
package envoytest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// MaxChunk is the maximum size of a streamed body reply, in bytes: some gateways refuse messages of more than 64 KiB.
const MaxChunk = 62000

// Names of the protocol of the Gateway API Inference Extension, and of HTTP.
const (
	HeaderDestination = "x-gateway-destination-endpoint"
	KeyServed         = "x-gateway-destination-endpoint-served"
	KeyScores         = "x-gateway-destination-endpoint-scores"
	KeySubset         = "x-gateway-destination-endpoint-subset"
	NamespaceLB       = "envoy.lb"
	NamespaceSubset   = "envoy.lb.subset_hint"

	headerLength = "content-length"
)

// Fields are headers: all values by name, in lower case as in HTTP/2.
type Fields map[string][]string

// Rules are what an exchange may do beyond the defaults. The zero value requires unchanged bodies.
type Rules struct {
	Allowed   func(endpoint string) bool // checks each address of the pick; nil allows all
	Fallbacks int                        // minimum number of addresses after the first
	Upstream  []byte                     // expected request body, if it differs from the sent one
	Client    []byte                     // expected response body, if it differs from the sent one
	Free      bool                       // allow any request body; UpstreamBody returns it
	Set       []string                   // request headers that may be set, besides those of a pick
	Remove    []string                   // request headers that may be removed
	Reply     []string                   // response headers that may be set
}

// A Gateway is one stream. RecordSent records messages, CheckReply checks replies, and CheckFinished checks that all messages were
// answered.
type Gateway struct {
	rules             Rules
	request, response direction
	immediate         *extprocv3.ImmediateResponse
	picked            string
	scores            map[string]float64
}

// New returns a Gateway at the start of its stream.
func New(r Rules) *Gateway {
	g := &Gateway{rules: r}
	g.request.want, g.response.want, g.request.free = r.Upstream, r.Client, r.Free
	g.SetModes(filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, filterv3.ProcessingMode_FULL_DUPLEX_STREAMED)
	return g
}

// SetModes sets the body modes of a gateway that does not send them to the picker. The default is full duplex.
func (g *Gateway) SetModes(request, response filterv3.ProcessingMode_BodySendMode) {
	g.request.mode, g.response.mode = request, response
}

// PickedEndpoint returns the destination of the request, or empty before the pick.
func (g *Gateway) PickedEndpoint() string { return g.picked }

// Scores returns the scores of the endpoints, nil if the picker did not send them.
func (g *Gateway) Scores() map[string]float64 { return g.scores }

// ImmediateResponse returns the picker's own response, nil if there is none.
func (g *Gateway) ImmediateResponse() *extprocv3.ImmediateResponse { return g.immediate }

// RequestHeaders returns the headers that the model server gets.
func (g *Gateway) RequestHeaders() Fields { return g.request.fields }

// ResponseHeaders returns the headers that the client gets.
func (g *Gateway) ResponseHeaders() Fields { return g.response.fields }

// UpstreamBody returns the part of the request's body that was forwarded in full duplex, or replaced.
func (g *Gateway) UpstreamBody() string { return string(g.request.got) }

// RequestEnded reports whether the request was sent completely.
func (g *Gateway) RequestEnded() bool { return g.request.isComplete() }

// ResponseHeadersAnswered reports whether the response's headers were forwarded to the client.
func (g *Gateway) ResponseHeadersAnswered() bool { return g.response.gotHeaders }

// RecordSent records a message to the picker.
func (g *Gateway) RecordSent(m *extprocv3.ProcessingRequest) {
	if c := m.GetProtocolConfig(); c != nil {
		g.SetModes(c.GetRequestBodyMode(), c.GetResponseBodyMode())
	}
	switch {
	case m.GetRequestHeaders() != nil:
		g.request.sentHeaders(m.GetRequestHeaders())
	case m.GetRequestBody() != nil:
		g.request.sentBody(m.GetRequestBody())
	case m.GetRequestTrailers() != nil:
		g.request.trailers = true
	case m.GetResponseHeaders() != nil:
		g.response.sentHeaders(m.GetResponseHeaders())
	case m.GetResponseBody() != nil:
		g.response.sentBody(m.GetResponseBody())
	case m.GetResponseTrailers() != nil:
		g.response.trailers = true
	}
}

// CheckReply checks a reply.
func (g *Gateway) CheckReply(r *extprocv3.ProcessingResponse) error {
	if g.immediate != nil {
		return errors.New("reply after an immediate response")
	}
	if err := g.takePart(r); err != nil {
		return err
	}
	return g.takeChanges(r)
}

func (g *Gateway) takePart(r *extprocv3.ProcessingResponse) error {
	switch r := r.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		return g.request.takeHeaders(r.RequestHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_RequestBody:
		return g.request.takeBody(r.RequestBody.GetResponse())
	case *extprocv3.ProcessingResponse_RequestTrailers:
		return g.request.takeTrailers()
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		return g.response.takeHeaders(r.ResponseHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseBody:
		return g.response.takeBody(r.ResponseBody.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		return g.response.takeTrailers()
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		if g.picked != "" || g.request.gotPieces > 0 || g.response.gotHeaders {
			return errors.New("immediate response after the request was answered")
		}
		g.immediate = r.ImmediateResponse
		return nil
	default:
		return fmt.Errorf("reply of kind %T", r)
	}
}

// takeChanges checks the changes of a reply other than the body.
func (g *Gateway) takeChanges(r *extprocv3.ProcessingResponse) error {
	switch {
	case r.GetImmediateResponse() != nil:
		return nil
	case r.GetRequestHeaders() != nil:
		return g.takeRequestChanges(r, r.GetRequestHeaders().GetResponse())
	case r.GetRequestBody() != nil:
		return g.takeRequestChanges(r, r.GetRequestBody().GetResponse())
	case r.GetRequestTrailers() != nil:
		return g.takeDestination(r)
	case r.GetDynamicMetadata() != nil:
		return errors.New("metadata with the response")
	case r.GetResponseHeaders() != nil:
		return g.response.changeHeaders(r.GetResponseHeaders().GetResponse().GetHeaderMutation(), g.allowReply)
	case r.GetResponseBody().GetResponse().GetHeaderMutation() != nil:
		return errors.New("headers with the response's body")
	}
	return nil
}

func (g *Gateway) takeRequestChanges(r *extprocv3.ProcessingResponse, common *extprocv3.CommonResponse) error {
	mutation, before := common.GetHeaderMutation(), g.picked
	if err := g.takeDestination(r); err != nil {
		return err
	}
	if err := g.request.changeHeaders(mutation, g.allowRequest); err != nil {
		return err
	}
	var set string
	for _, o := range mutation.GetSetHeaders() {
		if o.GetHeader().GetKey() == HeaderDestination {
			set = string(o.GetHeader().GetRawValue())
		}
	}
	now := g.picked != before
	switch {
	case now && set != g.picked:
		return fmt.Errorf("header %q and metadata %q differ", set, g.picked)
	case !now && set != "":
		return errors.New("pick without its metadata")
	case now != common.GetClearRouteCache():
		return errors.New("the pick, and nothing else, must clear the route cache")
	}
	return nil
}

// takeDestination checks the metadata of a reply. Only the pick has metadata.
func (g *Gateway) takeDestination(r *extprocv3.ProcessingResponse) error {
	if r.GetDynamicMetadata() == nil {
		return nil
	}
	if g.picked != "" {
		return errors.New("second pick")
	}
	all := r.GetDynamicMetadata().GetFields()
	lb := all[NamespaceLB].GetStructValue().GetFields()
	g.picked = lb[HeaderDestination].GetStringValue()
	allowed := 1
	if scores, there := lb[KeyScores]; there {
		allowed++
		g.scores = map[string]float64{}
		for name, v := range scores.GetStructValue().GetFields() {
			g.scores[name] = v.GetNumberValue()
		}
	}
	if len(all) != 1 || len(lb) != allowed {
		return fmt.Errorf("metadata %v", r.GetDynamicMetadata())
	}
	list := strings.Split(g.picked, ",")
	if len(list) != 1+g.rules.Fallbacks {
		return fmt.Errorf("picked %q", g.picked)
	}
	for _, address := range list {
		if address == "" || g.rules.Allowed != nil && !g.rules.Allowed(address) {
			return fmt.Errorf("picked %q, which may not be", address)
		}
	}
	return nil
}

// allowRequest reports whether a request header may be changed. A client's own destination may be removed before the pick.
func (g *Gateway) allowRequest(name string, how change) bool {
	if how == removed {
		return name == HeaderDestination && g.picked == "" || slices.Contains(g.rules.Remove, name)
	}
	return name == HeaderDestination || name == headerLength || slices.Contains(g.rules.Set, name)
}

// allowReply reports whether a response header may be changed. A rewritten response has another length.
func (g *Gateway) allowReply(name string, how change) bool {
	if how == removed {
		return name == headerLength && g.rules.Client != nil
	}
	return slices.Contains(g.rules.Reply, name)
}

// CheckFinished returns an error for messages of a completely sent exchange that are still unanswered.
func (g *Gateway) CheckFinished() error {
	if g.immediate != nil {
		return nil
	}
	// A full-duplex request that the gateway aborted, to answer it itself, waits for nothing.
	if !g.request.fullDuplex() || g.request.isComplete() {
		if err := g.request.checkComplete(); err != nil {
			return fmt.Errorf("request: %w", err)
		}
	}
	if err := g.response.checkComplete(); err != nil {
		return fmt.Errorf("response: %w", err)
	}
	return nil
}
