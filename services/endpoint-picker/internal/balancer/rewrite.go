package balancer

import (
	"encoding/json"

	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// headerAcceptEncoding must not reach the server if its answer is to be read.
const headerAcceptEncoding = "accept-encoding"

// target is the model that the server is asked for. A request that names none cannot be made one for another.
func target(x *exchange.Exchange) string {
	if name := x.Incoming.Headers.First(request.HeaderModel, request.HeaderModelOld); name != "" && x.Model != "" {
		return name
	}
	return x.Model
}

// rewrite makes a request for one model one for another, and has the answer say the client's name for it again.
func (m *memory) rewrite(x *exchange.Exchange) {
	if x.Target == x.Model {
		return
	}
	quoted, err := json.Marshal(x.Target)
	if err != nil {
		return // not reached: a string can always be written
	}
	span := m.incoming.Model
	asked := x.Incoming.Body[span.From-1 : span.To+1]
	x.Edit = exchange.Edit{Span: span, With: quoted[1 : len(quoted)-1]}
	x.Restore = answer.NewRenamer(quoted, append([]byte(nil), asked...))
	x.Remove = append(x.Remove, headerAcceptEncoding)
}
