package pick

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// encodingHeaders must not reach the server if the picker has to read the answer.
var encodingHeaders = []string{"accept-encoding"}

// applyRules applies the rules for the request: its flow, its priority and its target model. A header that names the model is the
// client's choice and precedes the rules.
func (p *pickState) applyRules() error {
	rules, result, headers := p.balancer.params.Rules.CurrentSnapshot(), &p.result, p.input.Incoming.Headers
	result.Fairness = headers.FirstOf(api.HeaderFairness, api.HeaderFairnessOld)
	if result.Objective = headers.FirstOf(api.HeaderObjective, api.HeaderObjectiveOld); result.Objective != "" {
		result.Priority, _ = rules.PriorityOf(result.Objective)
	}
	name := headers.FirstOf(api.HeaderModel, api.HeaderModelOld)
	if result.Target = result.Model; result.Model == "" {
		return p.checkUnreadModel(rules, name)
	}
	if name != "" {
		result.Target = name
	} else if rewrite, ok := rules.PickRewrite(result.Model, p.random); ok {
		result.Target, result.Rewrite = rewrite.Target, rewrite.Object
	}
	return nil
}

// checkUnreadModel returns an error if the target model depends on that of the body, which is unknown. A body that names no model matches
// only rules for all models; one that cannot be read may match any.
func (p *pickState) checkUnreadModel(rules *pool.RulesSnapshot, name string) error {
	reason := p.incoming.Unread
	if reason == nil {
		return nil
	}
	all, found := rules.PickRewrite("", p.random) // no rule names an empty model
	switch {
	case name != "":
		return fmt.Errorf("%w: a header asks for model %q in place of that of the body: %w", api.ErrMalformed, name, reason)
	case found:
		return fmt.Errorf("%w: InferenceModelRewrite %s is for all models: %w", api.ErrMalformed, all.Object, reason)
	case !errors.Is(reason, api.ErrNoModel) && rules.HasRewrites():
		return fmt.Errorf("%w: InferenceModelRewrites of this pool may be for its model: %w", api.ErrMalformed, reason)
	}
	return nil
}

// rewriteModel replaces the model of a request, and makes the answer contain the client's name for it again. In place of a digest,
// only its sender has a body.
func (p *pickState) rewriteModel() {
	result, in := &p.result, &p.input.Incoming
	if result.Target == result.Model || in.Digest != nil {
		return
	}
	quoted, _ := json.Marshal(result.Target) // a string can always be encoded
	target := quoted[1 : len(quoted)-1]
	span := p.incoming.ModelSpan
	var asked []byte // in quotes
	if p.incoming.ModelPlain {
		asked, _ = json.Marshal(result.Model) // as above
		result.Edit = request.Edit{Span: span, Replacement: []byte(result.Target)}
	} else {
		asked = bytes.Clone(in.Body[span.From-1 : span.To+1])
		result.Edit = request.Edit{Span: span, Replacement: target}
	}
	result.Restore = api.NewModelRenamer(string(api.Unescape(nil, target)), asked)
	result.Remove = encodingHeaders
}
