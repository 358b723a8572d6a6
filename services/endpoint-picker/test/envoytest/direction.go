package envoytest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// direction is one side of an exchange.
type direction struct {
	mode              filterv3.ProcessingMode_BodySendMode
	fields            Fields
	headers, trailers bool   // sent
	headersEnd        bool   // the headers ended the message
	body              []byte // up to the end, without duplicates
	want              []byte // expected instead of body; nil: body
	free              bool   // any body is allowed
	end               bool   // the body ended the message
	pieces            int    // body messages up to the end

	gotHeaders, gotTrailers, gotEnd bool
	got                             []byte
	gotPieces                       int
}

// change is the change of a header: set or removed.
type change bool

const (
	set     change = false
	removed change = true
)

func (d *direction) fullDuplex() bool {
	return d.mode == filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
}

func (d *direction) sentHeaders(h *extprocv3.HttpHeaders) {
	d.headers, d.headersEnd = true, h.GetEndOfStream()
	d.fields = Fields{}
	for _, f := range h.GetHeaders().GetHeaders() {
		value := string(f.GetRawValue())
		if value == "" {
			value = f.GetValue()
		}
		key := strings.ToLower(f.GetKey())
		d.fields[key] = append(d.fields[key], value)
	}
}

func (d *direction) sentBody(b *extprocv3.HttpBody) {
	if !d.end {
		d.body, d.end, d.pieces = append(d.body, b.GetBody()...), b.GetEndOfStream(), d.pieces+1
	}
}

// changeHeaders changes the headers as Envoy does: it removes headers first.
func (d *direction) changeHeaders(m *extprocv3.HeaderMutation, allowed func(name string, how change) bool) error {
	touched := map[string]bool{}
	for _, name := range m.GetRemoveHeaders() {
		if touched[name] || !allowed(name, removed) {
			return fmt.Errorf("header %q is removed", name)
		}
		touched[name] = true
		delete(d.fields, name)
	}
	for _, o := range m.GetSetHeaders() {
		name, value := o.GetHeader().GetKey(), string(o.GetHeader().GetRawValue())
		switch {
		case touched[name] || !allowed(name, set):
			return fmt.Errorf("header %q is set", name)
		case o.GetHeader().GetValue() != "":
			return fmt.Errorf("header %q has two values", name)
		case o.GetAppendAction() != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD:
			return fmt.Errorf("header %q does not replace the client's", name)
		case name == headerLength && !d.free && value != strconv.Itoa(len(d.wantedBody())):
			return fmt.Errorf("content length %s instead of %d", value, len(d.wantedBody()))
		}
		touched[name] = true
		d.fields[name] = []string{value}
	}
	return nil
}

// wantedBody is the expected body so far.
func (d *direction) wantedBody() []byte {
	if d.want != nil {
		return d.want
	}
	return d.body
}

func (d *direction) takeHeaders(r *extprocv3.CommonResponse) error {
	switch {
	case !d.headers:
		return errors.New("header reply to nothing")
	case d.gotHeaders:
		return errors.New("second header reply")
	case r.GetStatus() != extprocv3.CommonResponse_CONTINUE || r.GetBodyMutation() != nil:
		return errors.New("header reply that does more than continue")
	}
	d.gotHeaders = true
	return nil
}

func (d *direction) takeBody(r *extprocv3.CommonResponse) error {
	d.gotPieces++
	switch {
	case d.headers && !d.gotHeaders:
		return errors.New("body reply before the header reply")
	case d.fullDuplex():
		return d.takeStreamed(r.GetBodyMutation().GetStreamedResponse())
	case d.gotPieces > d.pieces:
		return errors.New("body reply to nothing")
	}
	d.gotEnd = d.end && d.gotPieces == d.pieces
	return d.takeWhole(r.GetBodyMutation())
}

// takeWhole checks the reply to a piece in a mode in which the gateway keeps it and waits.
func (d *direction) takeWhole(m *extprocv3.BodyMutation) error {
	if d.want == nil && !d.free {
		if m != nil {
			return errors.New("body mutation where none is wanted")
		}
		return nil
	}
	whole, ok := m.GetMutation().(*extprocv3.BodyMutation_Body)
	if !ok {
		return fmt.Errorf("body mutation %T where the piece is to be replaced", m.GetMutation())
	}
	return d.appendPiece(whole.Body)
}

func (d *direction) takeStreamed(b *extprocv3.StreamedBodyResponse) error {
	switch {
	case b == nil:
		return errors.New("body reply that is not streamed")
	case d.gotEnd || d.gotTrailers:
		return errors.New("body reply after the end")
	case len(b.GetBody()) > MaxChunk:
		return fmt.Errorf("chunk of %d bytes", len(b.GetBody()))
	}
	d.gotEnd = b.GetEndOfStream()
	if err := d.appendPiece(b.GetBody()); err != nil || !d.gotEnd {
		return err
	}
	return d.takeEnd()
}

// takeEnd checks a complete body.
func (d *direction) takeEnd() error {
	switch {
	case !d.end:
		return errors.New("end of stream that was not sent")
	case d.free && strconv.Itoa(len(d.got)) != strings.Join(d.fields[headerLength], ","):
		return fmt.Errorf("body of %d bytes, which is not its content length", len(d.got))
	case !d.free && len(d.got) != len(d.wantedBody()):
		return errors.New("body cut short")
	}
	return nil
}

func (d *direction) appendPiece(piece []byte) error {
	if !d.free {
		if rest := d.wantedBody()[len(d.got):]; !bytes.HasPrefix(rest, piece) {
			return fmt.Errorf("body differs from byte %d on: %.40q instead of %.40q", len(d.got), piece, rest)
		}
	}
	d.got = append(d.got, piece...)
	return nil
}

func (d *direction) takeTrailers() error {
	switch {
	case !d.trailers:
		return errors.New("trailer reply to nothing")
	case d.gotTrailers:
		return errors.New("second trailer reply")
	case d.headers && !d.gotHeaders:
		return errors.New("trailer reply before the header reply")
	case d.fullDuplex() && !d.free && len(d.got) != len(d.wantedBody()):
		return errors.New("trailer reply before the body")
	}
	d.gotTrailers = true
	return nil
}

func (d *direction) isComplete() bool { return d.headersEnd || d.end || d.trailers }

func (d *direction) checkComplete() error {
	switch {
	case d.headers != d.gotHeaders:
		return errors.New("headers were not answered")
	case !d.free && (d.fullDuplex() || d.want != nil && d.isComplete()) && d.pieces > 0 && !bytes.Equal(d.got, d.wantedBody()):
		return fmt.Errorf("%d of %d bytes came back", len(d.got), len(d.wantedBody()))
	case !d.fullDuplex() && d.pieces != d.gotPieces:
		return fmt.Errorf("%d of %d body messages were answered", d.gotPieces, d.pieces)
	case d.end != d.gotEnd:
		return errors.New("the end of the body was not answered")
	case d.trailers != d.gotTrailers:
		return errors.New("trailers were not answered")
	}
	return nil
}
