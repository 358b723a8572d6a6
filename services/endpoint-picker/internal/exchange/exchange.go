package exchange

import (
	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/jsonscan"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// An Exchange is one HTTP exchange on its way. The stream fills in what the gateway shows, the pick what is to be done
// about it. It is used by one goroutine.
type Exchange struct {
	Record
	Placement

	Incoming request.Incoming   // its body is there during the pick only
	Subset   *scheduling.Subset // what the gateway allows; nil allows everything
}

// Placement is what a pick decides.
type Placement struct {
	Lease       *endpoint.Lease
	Destination string          // "ip:port", or several separated by commas: where to go if the ones before fail
	Set         request.Headers // on the request
	Remove      []string        // headers of the request
	Edit        Edit            // of the request's body
	Restore     *answer.Renamer // gives the model of the response its name back, nil if it has it
	UsageForm   answer.Form     // in which the response says its usage
	Reply       request.Headers // to set on the response
	Conformance bool            // say in the response which endpoint served, as conformance tests of gateways want it
	Memory      any             // the picker's own
}

// An Edit replaces a part of a body. One without a text changes nothing.
type Edit struct {
	jsonscan.Span

	With []byte
}

// Growth is how many bytes longer the body becomes.
func (e Edit) Growth() int {
	if e.With == nil {
		return 0
	}
	return len(e.With) - (e.To - e.From)
}
