package extproc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// envoyLimit is what Envoy accepts in one streamed body reply.
const envoyLimit = 64 << 10

// strictGateway knows what a gateway has sent on a stream and refuses every reply that Envoy would refuse, and some
// that it would let pass. It is told of messages by sent and of replies by take; finish says whether all was answered.
type strictGateway struct {
	modes     Modes
	subset    map[string]bool // endpoints that may be picked
	request   direction
	response  direction
	immediate *extprocv3.ImmediateResponse
	picked    string
}

// direction is one side of an exchange.
type direction struct {
	headers, trailers bool   // were sent
	headersEnd        bool   // the headers ended it
	body              []byte // up to the end, duplicates left out
	end               bool   // the body ended it
	pieces            int    // body messages up to the end

	gotHeaders, gotTrailers, gotEnd bool
	got                             []byte
	gotPieces                       int
}

func (g *strictGateway) side(k Kind) *direction {
	if k >= ResponseHeaders {
		return &g.response
	}
	return &g.request
}

// sent takes note of a message that goes to the picker.
func (g *strictGateway) sent(m *Message) {
	d := g.side(m.Kind)
	switch m.Kind {
	case RequestHeaders, ResponseHeaders:
		d.headers, d.headersEnd = true, m.EndOfStream
		if m.Kind == RequestHeaders {
			g.modes = m.Modes
		}
	case RequestBody, ResponseBody:
		if !d.end {
			d.body, d.end, d.pieces = append(d.body, content(m.Body)...), m.EndOfStream, d.pieces+1
		}
	default:
		d.trailers = true
	}
}

// take checks a reply.
func (g *strictGateway) take(r *extprocv3.ProcessingResponse) error {
	if g.immediate != nil {
		return errors.New("reply after an immediate response")
	}
	switch r := r.GetResponse().(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		return g.request.takeHeaders(r.RequestHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_RequestBody:
		return g.request.takeBody(r.RequestBody.GetResponse(), g.modes.Request)
	case *extprocv3.ProcessingResponse_RequestTrailers:
		return g.request.takeTrailers(g.modes.Request)
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		return g.response.takeHeaders(r.ResponseHeaders.GetResponse())
	case *extprocv3.ProcessingResponse_ResponseBody:
		return g.response.takeBody(r.ResponseBody.GetResponse(), g.modes.Response)
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		return g.response.takeTrailers(g.modes.Response)
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

// takeDestination checks the reply that should carry the pick: one address, in the header and in the metadata.
func (g *strictGateway) takeDestination(r *extprocv3.ProcessingResponse) error {
	metadata := r.GetDynamicMetadata().GetFields()[lbNamespace].GetStructValue().GetFields()[headerDestination].GetStringValue()
	var mutation *extprocv3.CommonResponse
	switch {
	case r.GetRequestHeaders() != nil:
		mutation = r.GetRequestHeaders().GetResponse()
	case r.GetRequestBody() != nil:
		mutation = r.GetRequestBody().GetResponse()
	}
	headers := mutation.GetHeaderMutation().GetSetHeaders()
	if metadata == "" && len(headers) == 0 {
		return nil
	}
	if g.picked != "" {
		return errors.New("second pick")
	}
	g.picked = metadata
	if g.subset != nil && !g.subset[metadata] {
		return fmt.Errorf("picked %q, which may not be", metadata)
	}
	if r.GetRequestTrailers() != nil {
		return nil
	}
	length := ""
	if len(headers) == 2 && headers[1].GetHeader().GetKey() == headerContentLength {
		length, headers = string(headers[1].GetHeader().GetRawValue()), headers[:1]
	}
	switch {
	case length != "" && length != strconv.Itoa(len(g.request.body)):
		return fmt.Errorf("content length %s", length)
	case len(headers) != 1 || headers[0].GetHeader().GetKey() != headerDestination:
		return errors.New("pick without its header")
	case string(headers[0].GetHeader().GetRawValue()) != metadata || headers[0].GetHeader().GetValue() != "":
		return errors.New("header and metadata differ")
	case headers[0].GetAppendAction().String() != "OVERWRITE_IF_EXISTS_OR_ADD":
		return errors.New("header does not replace the client's")
	case !mutation.GetClearRouteCache():
		return errors.New("route cache is kept")
	case len(mutation.GetHeaderMutation().GetRemoveHeaders()) > 0:
		return errors.New("headers are removed")
	}
	return nil
}

func (d *direction) takeHeaders(r *extprocv3.CommonResponse) error {
	switch {
	case !d.headers:
		return errors.New("header reply to nothing")
	case d.gotHeaders:
		return errors.New("second header reply")
	case r.GetStatus() != extprocv3.CommonResponse_CONTINUE || r.GetBodyMutation() != nil:
		return errors.New("header reply that does more than continue")
	}
	d.gotHeaders = true
	return nil
}

func (d *direction) takeBody(r *extprocv3.CommonResponse, mode BodyMode) error {
	if d.gotPieces++; mode != FullDuplex {
		switch {
		case d.headers && !d.gotHeaders:
			return errors.New("body reply before the header reply")
		case r.GetBodyMutation() != nil:
			return errors.New("body mutation where none is wanted")
		case d.gotPieces > d.pieces:
			return errors.New("body reply to nothing")
		}
		d.gotEnd = d.end && d.gotPieces == d.pieces
		return nil
	}
	b := r.GetBodyMutation().GetStreamedResponse()
	switch {
	case d.headers && !d.gotHeaders:
		return errors.New("body reply before the header reply")
	case b == nil:
		return errors.New("body reply that is not streamed")
	case d.gotEnd || d.gotTrailers:
		return errors.New("body reply after the end")
	case len(b.GetBody()) > envoyLimit || len(b.GetBody()) > maxChunk:
		return fmt.Errorf("chunk of %d bytes", len(b.GetBody()))
	}
	same := bytes.HasPrefix(d.body[len(d.got):], b.GetBody())
	d.got = append(d.got, b.GetBody()...)
	d.gotEnd = b.GetEndOfStream()
	switch {
	case !same:
		return errors.New("body differs")
	case d.gotEnd && !d.end:
		return errors.New("end of stream that was not sent")
	case d.gotEnd && len(d.got) != len(d.body):
		return errors.New("body cut short")
	}
	return nil
}

func (d *direction) takeTrailers(mode BodyMode) error {
	switch {
	case !d.trailers:
		return errors.New("trailer reply to nothing")
	case d.gotTrailers:
		return errors.New("second trailer reply")
	case d.headers && !d.gotHeaders:
		return errors.New("trailer reply before the header reply")
	case mode == FullDuplex && len(d.got) != len(d.body):
		return errors.New("trailer reply before the body")
	}
	d.gotTrailers = true
	return nil
}

// finish says what is still unanswered of an exchange that was sent in full.
func (g *strictGateway) finish() error {
	if g.immediate != nil {
		return nil
	}
	// A full-duplex request that the gateway broke off, to answer it itself, waits for nothing.
	if g.modes.Request != FullDuplex || g.request.complete() {
		if err := g.request.finish(g.modes.Request); err != nil {
			return fmt.Errorf("request: %w", err)
		}
	}
	if err := g.response.finish(g.modes.Response); err != nil {
		return fmt.Errorf("response: %w", err)
	}
	return nil
}

func (d *direction) complete() bool { return d.headersEnd || d.end || d.trailers }

func (d *direction) finish(mode BodyMode) error {
	switch {
	case d.headers != d.gotHeaders:
		return errors.New("headers were not answered")
	case mode == FullDuplex && !bytes.Equal(d.got, d.body):
		return fmt.Errorf("%d of %d bytes came back", len(d.got), len(d.body))
	case mode != FullDuplex && d.pieces != d.gotPieces:
		return fmt.Errorf("%d of %d body messages were answered", d.gotPieces, d.pieces)
	case d.end != d.gotEnd:
		return errors.New("the end of the body was not answered")
	case d.trailers != d.gotTrailers:
		return errors.New("trailers were not answered")
	}
	return nil
}
