package chatload

import (
	"context"
	"errors"
	"net"
	"time"
)

// Headers of answers with the picked endpoint and the server.
const (
	headerServedBy       = "x-served-by"
	headerServedEndpoint = "x-served-endpoint"
	headerPickedEndpoint = "x-fairlead-picked-endpoint"
)

// Class is the kind of a failure.
type Class string

// Classes of failures. The first failure of a request determines its class. A timeout while connecting is ClassTimeout.
const (
	ClassNone      Class = ""                     // the request succeeded
	ClassConnect   Class = "connect"              // the connection failed
	ClassStatus    Class = "status"               // the status is not 200
	ClassReset     Class = "reset"                // the connection broke
	ClassTimeout   Class = "timeout"              // the request took longer than Options.Timeout
	ClassTruncated Class = "truncated"            // the stream ended cleanly, but without [DONE]
	ClassMalformed Class = "malformed"            // the answer is not a valid stream of a chat completion
	ClassTokens    Class = "token-mismatch"       // the numbers of received, reported and requested tokens differ
	ClassPicked    Class = "picked-is-not-served" // the endpoint that answered is not the picked one
	ClassCanceled  Class = "canceled"             // the caller's context ended; not a failure
)

// Result is the result of one request.
type Result struct {
	Index int // its number, from 0
	Group int // of its prompt
	Start time.Time

	Status         int    // 0: no answer
	ServedBy       string // pod name
	ServedEndpoint string // ip:port
	PickedEndpoint string // ip:port

	TTFT         time.Duration // from Start to the first token; 0: no token
	Duration     time.Duration // from Start to the end
	Tokens       int           // received
	PromptTokens int           // reported by the server
	CachedTokens int           // of the prompt tokens, those from the server's cache

	Class Class
	Err   error // nil when Class is ClassNone
}

// A classError is an error with its class.
type classError struct {
	class Class
	err   error
}

func (e *classError) Error() string { return e.err.Error() }
func (e *classError) Unwrap() error { return e.err }

// classify returns the class of a failure. ctx is the caller's, without the timeout of the request.
func classify(ctx context.Context, err error) Class {
	var known *classError
	var dial *dialError
	var operation *net.OpError
	switch {
	case err == nil:
		return ClassNone
	case ctx.Err() != nil:
		return ClassCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return ClassTimeout
	case errors.As(err, &known):
		return known.class
	case errors.As(err, &dial), errors.As(err, &operation) && operation.Op == "dial":
		return ClassConnect
	default:
		return ClassReset
	}
}
