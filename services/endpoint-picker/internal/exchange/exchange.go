package exchange

import (
	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/api/jsonscan"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// An Exchange is one HTTP exchange in progress. The stream fills in what the gateway sends, the pick fills in its decisions.
// Only one goroutine uses it.
type Exchange struct {
	Record
	Placement

	Incoming api.Incoming       // its body is set only during the pick
	Subset   *scheduling.Subset // what the gateway allows; nil allows everything
}

// Placement contains the decisions of a pick.
type Placement struct {
	Lease       *endpoint.Lease
	Destination string          // "ip:port", or several separated by commas: fallbacks for failures
	Set         api.Headers     // on the request
	Remove      []string        // headers of the request
	Edit        Edit            // of the request's body
	Restore     *answer.Renamer // restores the model name in the response, nil if not needed
	UsageForm   answer.Form     // format of the usage in the response
	Reply       api.Headers     // to set on the response
	Conformance bool            // report the endpoint that served in the response, for conformance tests of gateways
	Memory      any             // working memory of the picker
}

// An Edit replaces a part of a body. An empty one changes nothing.
type Edit struct {
	jsonscan.Span

	With []byte
}

// Growth returns the number of bytes that the body grows by.
func (e Edit) Growth() int {
	if e.With == nil {
		return 0
	}
	return len(e.With) - (e.To - e.From)
}
