package extproc

import (
	"fmt"
	"net/http"

	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

func (m *Machine) responseMessage(in *Message, out []Reply) ([]Reply, error) {
	if m.request == requestRefused || m.response == responseDone {
		return out, nil
	}
	if m.requestContext.Placements.AnsweringLease() == nil { // the gateway's own response: no request follows
		m.body.freeAll()
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
		m.requestContext.OnResponseEnd()
	}
	return out, nil
}

func (m *Machine) responseHeaders(in *request.ResponseHeaders) Reply {
	rc := &m.requestContext
	in.Hidden = m.modes.Response == None
	if m.offeredLength > 0 && in.Status == http.StatusSwitchingProtocols {
		m.tunnel, rc.Restore = true, nil
	}
	rc.OnResponseHeaders(in)
	r := Reply{Kind: ResponseHeaders}
	if rc.Placements.AnsweringLease() == nil {
		return r
	}
	r.Headers.Set = rc.Reply
	if rc.Restore != nil {
		r.Headers.Remove = []string{headerContentLength} // the length changes
	}
	return r
}

func (m *Machine) responseBody(in *Message, out []Reply) []Reply {
	rc := &m.requestContext
	switch {
	case in.Body == nil:
	case m.tunnel:
		rc.ResponseBytes += in.bodySize()
	default:
		rc.OnResponseChunk(in.Body.ReadOnlyData())
	}
	if rc.Restore == nil && m.modes.Response != FullDuplex {
		return append(out, Reply{Kind: ResponseBody}) // the gateway has the body
	}
	body := in.detachBody()
	if rc.Restore != nil {
		body = m.restoreModel(body, position(in.EndOfStream || m.modes.Response == Buffered))
	}
	if m.modes.Response != FullDuplex {
		return append(out, Reply{Kind: ResponseBody, Content: Replaced, Body: body})
	}
	return appendPiece(out, ResponseBody, body, position(in.EndOfStream))
}

// restoreModel restores the model name in a piece of the response.
func (m *Machine) restoreModel(piece mem.Buffer, at position) mem.Buffer {
	var restored []byte
	if piece != nil {
		restored = m.requestContext.Restore.Append(nil, piece.ReadOnlyData())
		piece.Free()
	}
	if at == atTheEnd {
		restored = m.requestContext.Restore.Flush(restored)
	}
	if len(restored) == 0 {
		return nil
	}
	return mem.SliceBuffer(restored)
}

// responseTrailers sends the part of the body that was held back, because the body has ended.
func (m *Machine) responseTrailers(out []Reply) []Reply {
	if m.requestContext.Restore != nil && m.modes.Response == FullDuplex && m.response == responseOpen {
		if rest := m.restoreModel(nil, atTheEnd); rest != nil {
			out = appendPiece(out, ResponseBody, rest, inTheMiddle)
		}
	}
	return append(out, Reply{Kind: ResponseTrailers})
}
