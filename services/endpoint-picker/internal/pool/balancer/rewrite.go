package balancer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"fairlead.dev/services/endpoint-picker/internal/answer"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/scan/jsonscan"
)

// headerAcceptEncoding must not reach the server if the picker has to read the answer.
const headerAcceptEncoding = "accept-encoding"

// applyRules applies the rules for the request: its flow, its priority and its target model. A header that names the model is the
// client's choice and precedes the rules.
func (b *Balancer) applyRules(x *exchange.RequestContext, r *api.Request, random uint64) error {
	headers := x.Incoming.Headers
	x.Fairness = headers.FirstOf(api.HeaderFairness, api.HeaderFairnessOld)
	if x.Objective = headers.FirstOf(api.HeaderObjective, api.HeaderObjectiveOld); x.Objective != "" {
		x.Priority, _ = b.rules.PriorityOf(x.Objective)
	}
	name := headers.FirstOf(api.HeaderModel, api.HeaderModelOld)
	if x.Target = x.Model; x.Model == "" {
		return b.checkUnreadModel(r.Unread, name, random)
	}
	if name != "" {
		x.Target = name
	} else if rewrite, ok := b.rules.PickRewrite(x.Model, random); ok {
		x.Target, x.Rewrite = rewrite.Target, rewrite.Object
	}
	return nil
}

// checkUnreadModel returns an error if the target model depends on one that is unknown for a reason. A body that names no model matches only rules for
// all models; one that cannot be read may match any.
func (b *Balancer) checkUnreadModel(reason error, name string, random uint64) error {
	if reason == nil {
		return nil
	}
	all, found := b.rules.PickRewrite("", random) // no rule names an empty model
	switch {
	case name != "":
		return fmt.Errorf("%w: a header asks for model %q in place of that of the body: %w", api.ErrMalformed, name, reason)
	case found:
		return fmt.Errorf("%w: InferenceModelRewrite %s is for all models: %w", api.ErrMalformed, all.Object, reason)
	case !errors.Is(reason, api.ErrNoModel) && b.rules.HasRewrites():
		return fmt.Errorf("%w: InferenceModelRewrites of this pool may be for its model: %w", api.ErrMalformed, reason)
	}
	return nil
}

// rewriteModel replaces the model of a request, and makes the answer contain the client's name for it again. In place of a digest,
// only its sender has a body.
func (m *pick) rewriteModel(x *exchange.RequestContext) {
	if x.Target == x.Model || x.Incoming.Digest != nil {
		return
	}
	quoted, err := json.Marshal(x.Target)
	if err != nil {
		return // unreachable: a string can always be encoded
	}
	target := quoted[1 : len(quoted)-1]
	span := m.incoming.ModelSpan
	var asked []byte // in quotes
	if m.incoming.ModelPlain {
		if asked, err = json.Marshal(x.Model); err != nil {
			return // as above
		}
		x.Edit = exchange.Edit{Span: span, Replacement: []byte(x.Target)}
	} else {
		asked = bytes.Clone(x.Incoming.Body[span.From-1 : span.To+1])
		x.Edit = exchange.Edit{Span: span, Replacement: target}
	}
	x.Restore = answer.NewRenamer(string(jsonscan.Unescape(nil, target)), asked)
	x.Remove = append(x.Remove, headerAcceptEncoding)
}
