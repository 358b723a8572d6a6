package extproc

import (
	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/request"
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
	Chunked                    // in pieces, each held until it is answered
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
	Request     Request    // of request headers
	Response    Response   // of response headers
}

// A Request is what is wanted of a request's headers.
type Request struct {
	Subset      *scheduling.Subset
	Path        string // with its query
	ID          string
	TraceParent string
	Headers     request.Headers // those that the decoder was asked for
	Private     []string        // names of headers that the model server must not get
	Destined    bool            // the client itself says where it is to go
}

// A Response is what is wanted of a response's headers.
type Response struct {
	Status int
	Served string // the endpoint that served, if the gateway says
	// Balanced says that the gateway has told of its load balancing at all.
	Balanced bool
	Events   bool // its body is a stream of events
	Encoded  bool // its body is compressed
}

// A Reply is one answer to the gateway.
type Reply struct {
	Kind        Kind
	Destination string            // set on the reply that carries the pick
	Scores      []exchange.Score  // beside it, if they are wanted
	Headers     *Headers          // to change; nil if none
	Content     Content           // of bodies
	EndOfStream bool              // of streamed bodies
	Body        mem.Buffer        // of bodies, nil if empty; whoever sends the reply frees it
	Refusal     *exchange.Refusal // of immediate replies
}

// Content says what becomes of a body that the gateway has sent.
type Content uint8

// What can become of it.
const (
	Same     Content = iota // it goes on as it is
	Streamed                // Body and EndOfStream are what goes on: the full-duplex mode
	Replaced                // Body is what goes on: the other modes
)

// Headers are changes to headers.
type Headers struct {
	Set    request.Headers
	Remove []string
}
