package extproc

import "fairlead.dev/services/endpoint-picker/internal/request"

// replyBeforePick answers headers before the pick. It removes forbidden headers now: if trailers come instead of a body, the reply
// with the pick cannot change headers any more, and the gateway would use the client's destination.
func (m *Machine) replyBeforePick(r *Request) Reply {
	reply := Reply{Kind: RequestHeaders}
	remove := r.Private
	if m.requestContext.Remove = nil; r.HasDestination {
		remove = append(remove, request.HeaderDestination)
	}
	if len(remove) > 0 {
		reply.Headers = &Headers{Remove: remove}
	}
	return reply
}

// headerChanges returns the header changes of the reply. It creates them if necessary.
func (r *Reply) headerChanges() *Headers {
	if r.Headers == nil {
		r.Headers = &Headers{}
	}
	return r.Headers
}
