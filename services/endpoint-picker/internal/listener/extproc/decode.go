package extproc

import (
	"bytes"
	"slices"
	"strconv"

	"google.golang.org/grpc/mem"

	"fairlead.dev/pkg/protoscan"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// errMalformed means that the input is not a message of the protocol.
var errMalformed = protoscan.ErrMalformed

// decoder reads a gateway's messages in the wire format. It skips unneeded fields, and does not copy bodies: they stay in
// the buffer of their message.
type decoder struct {
	bodyMode     BodyMode // of gateways that do not send protocol_config
	ignoreSubset bool
	wanted       *request.WantedHeaders
}

// decodeMessage reads a ProcessingRequest. The receiver must free its body.
func (d decoder) decodeMessage(in mem.Buffer, m *Message) error {
	*m = Message{Modes: Modes{Request: d.bodyMode, Response: d.bodyMode}}
	var part, metadata []byte
	var at int
	f := protoscan.Scan(in.ReadOnlyData())
	for f.Next() {
		switch {
		case f.Tag < tag(len(inKinds)) && inKinds[f.Tag] != 0:
			if m.Kind != 0 {
				return errMalformed // a message contains one part of the exchange
			}
			m.Kind, part, at = inKinds[f.Tag], f.Bytes, f.Offset
		case f.Tag == inMetadataContext:
			metadata = f.Bytes
		case f.Tag == inProtocolConfig:
			m.Modes = decodeModes(f.Bytes)
		}
	}
	if err := f.Err(); err != nil {
		return err
	}
	switch m.Kind {
	case RequestHeaders:
		if !d.ignoreSubset {
			m.Request.Subset = decodeSubset(metadata)
		}
		return d.decodeHeaders(part, m)
	case ResponseHeaders:
		m.Response.Served = string(decodeText(lookupMetadata(metadata, lbNamespace, keyServed)))
		return d.decodeHeaders(part, m)
	case RequestBody, ResponseBody:
		return decodeBody(in, part, at, m)
	}
	return nil
}

// decodeModes reads a ProtocolConfiguration. Zero values are not on the wire.
func decodeModes(message []byte) Modes {
	m := Modes{Request: bodyModes[0], Response: bodyModes[0]}
	for f := protoscan.Scan(message); f.Next(); {
		mode := FullDuplex // the default for modes newer than this program
		if f.Value < uint64(len(bodyModes)) {
			mode = bodyModes[f.Value]
		}
		switch f.Tag {
		case configRequestBody:
			m.Request = mode
		case configResponseBody:
			m.Response = mode
		}
	}
	return m
}

// decodeHeaders reads HttpHeaders.
func (d decoder) decodeHeaders(message []byte, m *Message) error {
	f := protoscan.Scan(message)
	for f.Next() {
		switch f.Tag {
		case headersMap:
			if err := d.readHeaders(f.Bytes, m); err != nil {
				return err
			}
		case headersEndOfStream:
			m.EndOfStream = f.Value != 0
		}
	}
	return f.Err()
}

// readHeaders reads the needed headers of a HeaderMap.
func (d decoder) readHeaders(message []byte, m *Message) error {
	f := protoscan.Scan(message)
	for f.Next() {
		if f.Tag != mapHeaders {
			continue
		}
		key, value, ok := decodeHeader(f.Bytes)
		if !ok {
			return errMalformed
		}
		if m.Kind == RequestHeaders {
			d.readRequestHeader(key, value, &m.Request)
		} else {
			readResponseHeader(key, value, &m.Response)
		}
	}
	return f.Err()
}

// readRequestHeader reads one header. If one of the gateway's own headers is repeated, the first counts.
func (d decoder) readRequestHeader(key, value []byte, r *Request) {
	switch string(key) {
	case headerPath:
		setIfEmpty(&r.Path, value)
	case request.HeaderRequestID:
		setIfEmpty(&r.ID, value)
	case request.HeaderTrace:
		setIfEmpty(&r.TraceParent, value)
	case request.HeaderDestination:
		r.HasDestination = true
	default:
		r.readFormatHeader(key, value)
		if h := d.wanted.FindHeader(key); h != nil {
			r.AddHeader(h, string(value))
		}
	}
}

func setIfEmpty(to *string, value []byte) {
	if *to == "" {
		*to = string(value)
	}
}

// readFormatHeader reads a header that says in which form the request or its answer comes. Picks may read it, too.
func (r *Request) readFormatHeader(key, value []byte) {
	switch string(key) {
	case headerConnection:
		r.Tunnel |= readTunnel(value, Upgraded)
	case headerUpgrade:
		r.Tunnel |= readTunnel(value, Requested)
	case headerProtocol:
		r.Tunnel |= Extended
	case headerTransfer:
		r.Tunnel |= Framed
	case headerContentLength:
		if string(value) != "0" {
			r.Tunnel |= Framed
			r.Length = readLength(value)
		}
	case headerAccept:
		r.RefusesJSON = r.RefusesJSON || !request.AcceptsJSON(string(value))
	case headerContentType:
		r.RefusesJSON = r.RefusesJSON || bytes.HasPrefix(value, []byte(contentGRPC))
	}
}

// readLength parses a Content-Length header. It returns 0 for a value that is not a number.
func readLength(value []byte) int {
	n, err := strconv.ParseUint(string(value), 10, 63)
	if err != nil {
		return 0
	}
	return int(n)
}

// readTunnel returns the flag of a header if its list says that the request opens a tunnel. TLS and HTTP/2 without TLS (RFC 2817, RFC 7540)
// are offers to go on with the same request in another way: it can do without.
func readTunnel(list []byte, flag Tunnel) Tunnel {
	for token := range bytes.SplitSeq(list, []byte(",")) {
		token = bytes.ToLower(bytes.TrimSpace(token))
		switch {
		case flag == Upgraded && string(token) == headerUpgrade:
			return flag
		case flag == Requested && len(token) > 0 && string(token) != "h2c" && !bytes.HasPrefix(token, []byte("tls/")):
			return flag
		}
	}
	return 0
}

func readResponseHeader(key, value []byte, r *request.ResponseHeaders) {
	switch string(key) {
	case headerStatus:
		if r.Status == 0 {
			r.Status, _ = strconv.Atoi(string(value)) // Atoi returns 0 for a text
		}
	case headerContentType:
		r.SetContentType(string(value))
	case headerContentEncoding:
		r.Encoded = string(value) != encodingNone
	}
}

// decodeHeader reads a HeaderValue, with its key in lower case. Envoy sends raw values and lower case; not every gateway does.
func decodeHeader(message []byte) (key, value []byte, ok bool) {
	var text []byte
	f := protoscan.Scan(message)
	for f.Next() {
		switch f.Tag {
		case headerKey:
			key = f.Bytes
		case headerText:
			text = f.Bytes
		case headerRaw:
			value = f.Bytes
		}
	}
	if len(value) == 0 {
		value = text
	}
	return lowerKey(key), value, f.Err() == nil
}

// lowerKey returns a header's key in lower case.
func lowerKey(key []byte) []byte {
	if slices.ContainsFunc(key, func(c byte) bool { return 'A' <= c && c <= 'Z' }) {
		return bytes.ToLower(key)
	}
	return key
}

// decodeBody reads an HttpBody that begins at an offset in the buffer of its message.
func decodeBody(in mem.Buffer, message []byte, at int, m *Message) error {
	var from, to int
	f := protoscan.Scan(message)
	for f.Next() {
		switch f.Tag {
		case bodyBytes:
			from, to = at+f.Offset, at+f.Offset+len(f.Bytes)
		case bodyEndOfStream:
			m.EndOfStream = f.Value != 0
		}
	}
	if err := f.Err(); err != nil {
		return err
	}
	if to > from {
		m.Body = in.Slice(from, to)
	}
	return nil
}

// decodeSubset reads the gateway's hint, nil if there is none. A hint allows only the endpoints that it names.
func decodeSubset(metadata []byte) *scheduling.Subset {
	hint := lookupMetadata(metadata, subsetNamespace, keySubset)
	if hint == nil {
		return nil
	}
	var entries []string
	for f := protoscan.Scan(hint); f.Next(); {
		switch f.Tag {
		case valueText:
			entries = append(entries, string(f.Bytes))
		case valueList:
			for l := protoscan.Scan(f.Bytes); l.Next(); {
				if l.Tag == listValues {
					entries = append(entries, string(decodeText(l.Bytes)))
				}
			}
		}
	}
	return scheduling.ParseSubset(entries)
}

// lookupMetadata returns one Value of the metadata, or nil.
func lookupMetadata(message []byte, namespace, key string) []byte {
	return lookupEntry(lookupEntry(message, namespace), key)
}

// decodeText returns the text of a Value, if it is a string.
func decodeText(message []byte) []byte {
	var text []byte
	for f := protoscan.Scan(message); f.Next(); {
		if f.Tag == valueText {
			text = f.Bytes
		}
	}
	return text
}
