package extproc

import "fairlead.dev/services/endpoint-picker/internal/request"

// clean answers headers before the pick. What must not get through goes now: if trailers come instead of a body, the reply that
// carries the pick can change no headers, and the gateway would go where the client says.
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

// trace makes the request a part of its trace, and has the model server be a part of that.
func (m *Machine) trace() {
	x := &m.exchange
	span, header := m.options.Tracer.Begin(x.TraceParent)
	x.Span = span
	if header != "" {
		x.Set = append(x.Set, request.Header{Name: headerTrace, Value: header})
	}
}

// change returns the changes to headers, to be added to.
func (r *Reply) change() *Headers {
	if r.Headers == nil {
		r.Headers = &Headers{}
	}
	return r.Headers
}
