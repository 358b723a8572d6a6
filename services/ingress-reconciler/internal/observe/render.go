package observe

import "fairlead.dev/services/ingress-reconciler/internal/render"

// RenderParams returns the input of render.Render in addition to the plan.
func (o *Observation) RenderParams() render.Params {
	p := render.Params{Service: o.Input.Service, Settings: &o.Input.Settings, Classes: o.Input.Classes}
	p.Requester = o.Requester
	for i := range o.Live {
		p.Live = append(p.Live, o.Live[i].Object)
	}
	return p
}
