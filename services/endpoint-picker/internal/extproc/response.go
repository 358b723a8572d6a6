package extproc

import (
	"fmt"
	"net/http"

	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

func (m *Machine) responseMessage(in *Message, out []Reply) ([]Reply, error) {
	if m.request == requestRefused || m.response == responseDone {
		return out, nil
	}
	if m.exchange.Placements.Answering() == nil { // the gateway's own response: no request follows
		m.body.drop()
		m.request = requestDone
	}
	end := in.EndOfStream
	switch in.Kind {
	case ResponseHeaders:
		if m.response != responseFresh {
			return out, fmt.Errorf("response headers: %w", errOrder)
		}
		out = append(out, m.responseHeaders(&in.Response))
	case ResponseBody:
		out = m.responseBody(in, out)
	default:
		end = true
		out = m.responseTrailers(out)
	}
	switch {
	case end:
		m.response = responseDone
	case in.Kind == ResponseBody && m.modes.Response == Buffered:
		m.response = responseWhole
	default:
		m.response = responseOpen
	}
	if m.response >= responseWhole {
		m.exchange.Complete()
	}
	return out, nil
}

func (m *Machine) responseHeaders(in *exchange.Response) Reply {
	x := &m.exchange
	in.Hidden = m.modes.Response == None
	if m.offered > 0 && in.Status == http.StatusSwitchingProtocols {
		m.tunnel, x.Restore = true, nil
	}
	x.Respond(in)
	r := Reply{Kind: ResponseHeaders}
	if x.Placements.Answering() == nil {
		return r
	}
	set := x.Reply
	if m.options.ReportEndpoint {
		set = append(set, api.Header{Name: headerPicked, Value: x.Endpoint.Address()})
	}
	if x.Conformance && in.Served != "" { // else the echo server's own header stays
		set = append(set, api.Header{Name: exchange.HeaderServed, Value: in.Served})
	}
	var remove []string
	if x.Restore != nil {
		remove = []string{headerContentLength} // the length changes
	}
	if len(set) > 0 || len(remove) > 0 {
		r.Headers = &Headers{Set: set, Remove: remove}
	}
	return r
}

func (m *Machine) responseBody(in *Message, out []Reply) []Reply {
	x := &m.exchange
	switch {
	case in.Body == nil:
	case m.tunnel:
		x.ResponseBytes += in.size()
	default:
		x.Chunk(in.Body.ReadOnlyData())
	}
	body := in.take()
	if x.Restore == nil {
		if m.modes.Response != FullDuplex {
			if body != nil {
				body.Free()
			}
			return append(out, Reply{Kind: ResponseBody})
		}
		return appendPiece(out, ResponseBody, body, position(in.EndOfStream))
	}
	end := in.EndOfStream || m.modes.Response == Buffered
	restored := m.restore(body, position(end))
	if m.modes.Response != FullDuplex {
		return append(out, Reply{Kind: ResponseBody, Content: Replaced, Body: restored})
	}
	return appendPiece(out, ResponseBody, restored, position(in.EndOfStream))
}

// restore restores the model name in a piece of the response.
func (m *Machine) restore(piece mem.Buffer, at position) mem.Buffer {
	var restored []byte
	if piece != nil {
		restored = m.exchange.Restore.Append(nil, piece.ReadOnlyData())
		piece.Free()
	}
	if at == atTheEnd {
		restored = m.exchange.Restore.Flush(restored)
	}
	if len(restored) == 0 {
		return nil
	}
	return mem.SliceBuffer(restored)
}

// responseTrailers sends the part of the body that was held back, because the body has ended.
func (m *Machine) responseTrailers(out []Reply) []Reply {
	if m.exchange.Restore != nil && m.modes.Response == FullDuplex && m.response == responseOpen {
		if rest := m.restore(nil, atTheEnd); rest != nil {
			out = appendPiece(out, ResponseBody, rest, inTheMiddle)
		}
	}
	return append(out, Reply{Kind: ResponseTrailers})
}
