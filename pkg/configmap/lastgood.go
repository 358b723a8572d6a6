// Package configmap watches configuration that users edit in a ConfigMap.
//
//	the text                    the value in force
//	is valid                    the decoded value
//	is invalid, or its key
//	is missing                  the last valid value; a log line, an Event and an observer report it, once for each text
//	was deleted                 the last valid value, as the ConfigMap may be replaced; a log line and the observer report it
//	never existed, or
//	never was valid             none
//
// A Store watches one key of one ConfigMap. LastGood is its core, for sources of other kinds.
package configmap

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Decode decodes a text. An error means that the text is invalid.
type Decode[T any] func(text []byte) (T, error)

// LastGood holds the last valid value of a text. Reads take no lock.
type LastGood[T any] struct {
	name   string
	decode Decode[T]
	state  atomic.Pointer[state[T]]

	mu     sync.Mutex // serializes writers
	seen   bool
	digest [sha256.Size]byte // of the last text or problem
}

type state[T any] struct {
	value   T
	present bool
	problem string
}

// NewLastGood returns a LastGood without a value. Its problems begin with the name of the source, for example "ConfigMap
// fairlead/ingress".
func NewLastGood[T any](name string, decode Decode[T]) *LastGood[T] {
	g := &LastGood[T]{name: name, decode: decode}
	g.state.Store(&state[T]{})
	return g
}

// Current returns the value in force, whether there is one, and the reason why the source currently has no valid text; the
// problem is one line, or empty.
func (g *LastGood[T]) Current() (value T, present bool, problem string) {
	s := g.state.Load()
	return s.value, s.present, s.problem
}

// Set decodes a text and puts its value in force if it is valid. The error says why it is invalid. For an unchanged text Set does nothing
// and returns false.
func (g *LastGood[T]) Set(text []byte) (changed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isRepeated("text", text) {
		return false, nil
	}
	value, err := g.decode(text)
	if err != nil {
		g.refuseText(err)
	} else {
		g.state.Store(&state[T]{value: value, present: true})
	}
	return true, err
}

// Reject records the reason why the source has no text. For an unchanged reason it does nothing and returns false.
func (g *LastGood[T]) Reject(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isRepeated("problem", []byte(err.Error())) {
		return false
	}
	g.refuseText(err)
	return true
}

// MarkDeleted records that the source was deleted, which is a problem only if a value is in force. The next text always counts as
// new.
func (g *LastGood[T]) MarkDeleted() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = false
	s := *g.state.Load()
	s.problem = ""
	if s.present {
		s.problem = g.name + " was deleted"
	}
	g.state.Store(&s)
}

// refuseText keeps the value in force.
func (g *LastGood[T]) refuseText(err error) {
	s := *g.state.Load()
	s.problem = g.name + ": " + strings.ReplaceAll(err.Error(), "\n", "; ")
	g.state.Store(&s)
}

// isRepeated reports whether the input is the same as the last one, and stores it.
func (g *LastGood[T]) isRepeated(kind string, input []byte) bool {
	digest := sha256.Sum256(fmt.Appendf(nil, "%s:%s", kind, input))
	repeated := g.seen && g.digest == digest
	g.seen, g.digest = true, digest
	return repeated
}
