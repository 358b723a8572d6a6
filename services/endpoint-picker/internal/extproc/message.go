package extproc

import (
	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Kind says what part of an HTTP exchange a message or a reply is about.
type Kind uint8

// The parts of an exchange. Immediate is a reply only: the end of the exchange, made here.
const (
	RequestHeaders Kind = iota + 1
	RequestBody
	RequestTrailers
	ResponseHeaders
	ResponseBody
	ResponseTrailers
	Immediate
)

// BodyMode says how the gateway sends a body, and so how it wants it answered.
type BodyMode uint8

// The body modes.
const (
	FullDuplex BodyMode = iota // in pieces, answered by other pieces whenever the picker likes
	Streamed                   // in pieces, each held until it is answered
	Buffered                   // whole, held until it is answered
	None                       // not at all
)

// Modes are the body modes of the two directions.
type Modes struct {
	Request, Response BodyMode
}

// A Message is what a gateway shows. Fields that its kind does not have are zero.
type Message struct {
	Kind        Kind
	EndOfStream bool       // of headers and bodies: nothing of this direction follows
	Body        mem.Buffer // of bodies, nil if empty; whoever takes it sets it to nil, and frees it
	Modes       Modes      // of request headers
	Subset      *scheduling.Subset
	Path        string // of request headers, with its query
	RequestID   string // of request headers
	Status      int    // of response headers
	Served      string // of response headers: the endpoint that served, if the gateway says
}

// A Reply is one answer to the gateway.
type Reply struct {
	Kind        Kind
	Destination string     // set on the reply that carries the pick
	Picked      string     // set on response headers, to be reported to the client
	Streamed    bool       // of bodies: Body and EndOfStream replace what the gateway has sent
	EndOfStream bool       // of streamed bodies
	Body        mem.Buffer // of streamed bodies, nil if empty; whoever sends the reply frees it
	Refusal     *Refusal   // of immediate replies
}

// A Refusal is an HTTP response that takes the place of a model server's.
type Refusal struct {
	Code   int
	Reason string // why the request was dropped, for clients; may be empty
	Text   string
}
