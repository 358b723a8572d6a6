package extproc

import "fairlead.dev/services/endpoint-picker/internal/api"

// clean answers headers before the pick. It removes forbidden headers now: if trailers come instead of a body, the reply
// with the pick cannot change headers any more, and the gateway would use the client's destination.
func (m *Machine) clean(r *Request) Reply {
	reply := Reply{Kind: RequestHeaders}
	remove := r.Private
	if m.exchange.Remove = nil; r.Destined {
		remove = append(remove, headerDestination)
	}
	if len(remove) > 0 {
		reply.Headers = &Headers{Remove: remove}
	}
	return reply
}

// trace begins the request's span, and makes it the parent of the model server's spans.
func (m *Machine) trace() {
	x := &m.exchange
	span, header := m.options.Tracer.Begin(x.TraceParent)
	x.Span = span
	if header != "" {
		x.Set = append(x.Set, api.Header{Name: headerTrace, Value: header})
	}
}

// change returns the header changes of the reply. It creates them if necessary.
func (r *Reply) change() *Headers {
	if r.Headers == nil {
		r.Headers = &Headers{}
	}
	return r.Headers
}
