package extproc

import (
	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Kind is the part of an HTTP exchange that a message or a reply contains.
type Kind uint8

// The parts of an exchange. Immediate occurs only in replies: the picker answers the request itself.
const (
	RequestHeaders Kind = iota + 1
	RequestBody
	RequestTrailers
	ResponseHeaders
	ResponseBody
	ResponseTrailers
	Immediate
)

// BodyMode is how the gateway sends a body, and how it expects replies to it.
type BodyMode uint8

// The body modes.
const (
	FullDuplex BodyMode = iota // in pieces; the reply may have other pieces at other times
	Chunked                    // in pieces; each waits for its reply
	Buffered                   // as a whole; it waits for the reply
	None                       // not at all
)

// Modes are the body modes of the two directions.
type Modes struct {
	Request, Response BodyMode
}

// A Message is a message of a gateway. Fields that its kind does not have are zero.
type Message struct {
	Kind        Kind
	EndOfStream bool                    // of headers and bodies: the last message of this direction
	Body        mem.Buffer              // of bodies, nil if empty; a function that takes it over sets it to nil and frees it
	Modes       Modes                   // of request headers
	Request     Request                 // of request headers
	Response    request.ResponseHeaders // of response headers
}

// A Request contains the needed parts of a request's headers.
type Request struct {
	request.IncomingHeaders

	HasDestination bool // the client set a destination itself
	RefusesJSON    bool // the client does not accept JSON, or speaks gRPC
	Tunnel         Tunnel
	Length         int // of the body, by its header; 0 if unknown
}

// Tunnel is what the headers of a request say of a tunnel, such as a WebSocket: a body in both directions that ends only with it.
type Tunnel uint8

// The headers of a tunnel.
const (
	Upgraded  Tunnel = 1 << iota // Connection: Upgrade
	Requested                    // Upgrade, with a protocol that needs a tunnel
	Extended                     // :protocol (RFC 8441)
	Framed                       // the length of a body: clients could hide a prompt from the pick behind the offer of a tunnel
)

// isOpened reports whether the request opens a tunnel.
func (t Tunnel) isOpened() bool { return t&Framed == 0 && (t&Extended != 0 || t == Upgraded|Requested) }

// isOffered reports whether the request has a body, and offers to go on with a tunnel. It is complete with its body (RFC 9110, 7.8), and
// the model server may ignore the offer. Envoy passes the body on as if it were already a part of the tunnel, so nothing but its length
// ends it.
func (t Tunnel) isOffered() bool {
	return t&Framed != 0 && t&(Upgraded|Requested) == Upgraded|Requested
}

// A Reply is a reply to the gateway.
type Reply struct {
	Kind        Kind
	Destination string              // set on the reply with the pick
	Scores      []request.Score     // sent with the destination, if enabled
	Headers     Headers             // changes
	Content     Content             // of bodies
	EndOfStream bool                // of streamed bodies
	Body        mem.Buffer          // of bodies, nil if empty; the sender of the reply frees it
	Refusal     *request.Refusal    // of immediate replies
	ErrorFormat request.ErrorFormat // of the refusal
}

// Content is the result for a body that the gateway has sent.
type Content uint8

// The possible results.
const (
	Same     Content = iota // forward unchanged
	Streamed                // forward Body and EndOfStream: the full-duplex mode
	Replaced                // forward Body: the other modes
)

// Headers are changes to headers.
type Headers struct {
	Set    api.Headers
	Remove []string
}

func (h *Headers) areUnchanged() bool { return len(h.Set)+len(h.Remove) == 0 }
