package plugins

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Sessions find the endpoint of a request's session, and bind sessions to endpoints. An endpoint is named "namespace/pod:port",
// because the servers of a pod have separate caches. The name without a port, which older tokens have, means all ports of
// the pod.
type Sessions struct {
	settings sessionSettings
	table    *sessionTable // of sessionByID
}

func newSessions(s sessionSettings) *Sessions {
	sessions := &Sessions{settings: s}
	if s.strategy == sessionByID {
		sessions.table = newSessionTable(s.ttl, s.sweep)
	}
	return sessions
}

// maxToken is the maximum length of a token: base64 of the longest namespace and name of an endpoint in a file (253 bytes
// each), with a port, are 686 bytes. Longer ones are not ours. It is also the size of buffers on the stack.
const maxToken = 768

// sessionBuffer is memory for the name of an endpoint.
type sessionBuffer [maxToken]byte

// binding is the endpoint of a session.
type binding struct {
	name []byte // "namespace/pod"
	port uint16 // 0 means every port
}

// matches reports whether the session is bound to the endpoint.
func (b binding) matches(s *scheduling.Server) bool {
	return (b.port == 0 || b.port == s.Address.Port()) && s.Name == string(b.name)
}

// findBinding returns the endpoint that the session of a request is bound to.
func (s *Sessions) findBinding(r *scheduling.Request, buffer *sessionBuffer) (binding, bool) {
	if s.settings.strategy == sessionInHeader {
		return decodeToken(r.Headers.ValueOf(s.settings.header), buffer)
	}
	id := s.sessionID(r.Headers)
	if id == "" {
		return binding{}, false
	}
	bound, ok := s.table.findSession(id, r.Now)
	if !ok {
		return binding{}, false
	}
	return binding{name: append(buffer[:0], bound.name...), port: bound.port}, true
}

// decodeToken returns the endpoint that a token names.
func decodeToken(token string, buffer *sessionBuffer) (binding, bool) {
	if token == "" || len(token) > maxToken {
		return binding{}, false
	}
	var encoded sessionBuffer
	n, err := base64.StdEncoding.Decode(buffer[:], encoded[:copy(encoded[:], token)])
	if err != nil {
		return binding{}, false // not ours: the client gets a new one
	}
	name := buffer[:n]
	colon := bytes.LastIndexByte(name, ':')
	if colon < 0 {
		return binding{name: name}, true
	}
	port, err := strconv.ParseUint(string(name[colon+1:]), 10, 16)
	if err != nil || port == 0 {
		return binding{name: name}, true // the colon belongs to the name
	}
	return binding{name: name[:colon], port: uint16(port)}, true
}

// Bind binds the session of a request to the picked endpoint, for later requests.
func (s *Sessions) Bind(r *scheduling.Request, chosen *scheduling.Server) (name, value string) {
	if s.settings.strategy == sessionInHeader {
		var buffer sessionBuffer
		text := append(buffer[:0], chosen.Name...)
		text = strconv.AppendUint(append(text, ':'), uint64(chosen.Address.Port()), 10)
		return s.settings.header, base64.StdEncoding.EncodeToString(text)
	}
	if id := s.sessionID(r.Headers); id != "" {
		s.table.bindSession(id, sessionServer{chosen.Name, chosen.Address.Port()}, r.Now)
	}
	return "", ""
}

// sessionID returns the identifier of the session of a request; empty without a session.
func (s *Sessions) sessionID(headers api.Headers) string {
	for _, source := range s.settings.sources {
		id := headers.ValueOf(source.header)
		if source.cookie != "" {
			id = cookieValue(id, source.cookie)
		}
		if id != "" {
			return id
		}
	}
	return ""
}

// cookieValue returns the value of a cookie.
func cookieValue(header, name string) string {
	for pair := range strings.SplitSeq(header, ";") {
		if key, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && key == name {
			return value
		}
	}
	return ""
}
