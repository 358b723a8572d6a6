package chatload

import (
	"context"
	"errors"
	"net"
	"time"
)

// The headers that tell where a request went.
const (
	headerServedBy       = "x-served-by"
	headerServedEndpoint = "x-served-endpoint"
	headerPickedEndpoint = "x-fairlead-picked-endpoint"
)

// Class is the kind of a failure.
type Class string

// The classes. A request has the first that fits, in the order of what happens to it.
const (
	ClassNone      Class = ""                     // it succeeded
	ClassConnect   Class = "connect"              // no connection was made
	ClassStatus    Class = "status"               // the answer was not 200
	ClassReset     Class = "reset"                // the connection broke
	ClassTimeout   Class = "timeout"              // it took longer than Options.Timeout
	ClassTruncated Class = "truncated"            // the stream ended in order, but without [DONE]
	ClassMalformed Class = "malformed"            // the stream was not what a chat completion is
	ClassTokens    Class = "token-mismatch"       // tokens received, counted by the server and asked for are not the same
	ClassPicked    Class = "picked-is-not-served" // the picker named another endpoint than the one that answered
	ClassCanceled  Class = "canceled"             // the caller's context ended; not a failure
)

// Result is what became of one request.
type Result struct {
	Index int // its number, from 0
	Group int // of its prompt
	Start time.Time

	Status         int    // 0: there was no answer
	ServedBy       string // pod name
	ServedEndpoint string // ip:port
	PickedEndpoint string // ip:port

	TTFT         time.Duration // from Start to the first token; 0: there was none
	Duration     time.Duration // from Start to the end
	Tokens       int           // received
	PromptTokens int           // as the server counts them
	CachedTokens int           // those of them that came from its cache

	Class Class
	Err   error // nil when Class is ClassNone
}

// A classError is an error whose class is known where it is found.
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
