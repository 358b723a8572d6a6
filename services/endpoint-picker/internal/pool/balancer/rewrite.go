package balancer

import (
	"bytes"
	"encoding/json"

	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
)

// headerAcceptEncoding must not reach the server if the picker has to read the answer.
const headerAcceptEncoding = "accept-encoding"

// rule applies the rules for the request: its flow, its priority and its target model. A header that names the model is the
// client's choice and precedes the rules.
func (b *Balancer) rule(x *exchange.Exchange, random uint64) {
	headers := x.Incoming.Headers
	x.Fairness = headers.First(api.HeaderFairness, api.HeaderFairnessOld)
	if x.Objective = headers.First(api.HeaderObjective, api.HeaderObjectiveOld); x.Objective != "" {
		x.Priority, _ = b.rules.Priority(x.Objective)
	}
	if x.Target = x.Model; x.Model == "" {
		return // a request without a model cannot be rewritten
	}
	if name := headers.First(api.HeaderModel, api.HeaderModelOld); name != "" {
		x.Target = name
	} else if r, ok := b.rules.Rewrite(x.Model, random); ok {
		x.Target, x.Rewrite = r.Target, r.Object
	}
}

// rewrite replaces the model of a request, and makes the answer contain the client's name for it again. In place of a digest,
// only its sender has a body.
func (m *memory) rewrite(x *exchange.Exchange) {
	if x.Target == x.Model || x.Incoming.Digest != nil {
		return
	}
	quoted, err := json.Marshal(x.Target)
	if err != nil {
		return // unreachable: a string can always be encoded
	}
	target := quoted[1 : len(quoted)-1]
	span := m.incoming.ModelSpan
	asked := bytes.Clone(x.Incoming.Body[span.From-1 : span.To+1])
	x.Edit = exchange.Edit{Span: span, With: target}
	x.Restore = answer.NewRenamer(string(jsonscan.Unescape(nil, target)), asked)
	x.Remove = append(x.Remove, headerAcceptEncoding)
}
