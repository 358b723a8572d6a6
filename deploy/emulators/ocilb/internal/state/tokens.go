package state

import (
	"crypto/sha256"
	"net/http"
	"time"

	"fairlead.dev/deploy/emulators/ocilb/internal/lbapi"
)

// tokenLife is the time for which the service remembers retry tokens.
const tokenLife = 24 * time.Hour

// tokens are retry tokens with their first uses.
type tokens struct {
	uses  map[string]*use
	order []string // in the order of their expiry
}

// use is the first use of a retry token.
type use struct {
	work     *work
	balancer *balancer
	body     [sha256.Size]byte
	until    time.Time
}

// add remembers the retry token of a work request, if it has one.
func (t *tokens) add(w *work, b *balancer) {
	token := w.mutation.Token
	if token == "" {
		return
	}
	if t.uses == nil {
		t.uses = map[string]*use{}
	}
	t.uses[token] = &use{work: w, balancer: b, body: sha256.Sum256(w.mutation.Body), until: time.Now().Add(tokenLife)}
	t.order = append(t.order, token)
}

// find returns the first use of a retry token, or nil. It forgets expired ones.
func (t *tokens) find(token string) *use {
	for len(t.order) > 0 && time.Now().After(t.uses[t.order[0]].until) {
		delete(t.uses, t.order[0])
		t.order = t.order[1:]
	}
	if token == "" {
		return nil
	}
	return t.uses[token]
}

// repeated returns the work request of a mutation whose retry token was used before.
func (s *State) repeated(t *tokens, m *Mutation) (*work, *lbapi.Error) {
	u := t.find(m.Token)
	if u == nil {
		return nil, nil
	}
	differs := u.work.mutation.Resource != m.Resource || u.body != sha256.Sum256(m.Body)
	if u.invalidated() || differs && s.modes.TokenConflict {
		return nil, lbapi.Errorf(http.StatusConflict, lbapi.CodeInvalidatedToken, "The retry token was used before, and the resource was changed since, or the request differs")
	}
	return u.work, nil
}

// invalidated reports whether somebody else has changed the resource since the request. Oracle's definition wants a request that
// has updated the system: the token of one that has failed stays valid, and its answer is the failed work request.
func (u *use) invalidated() bool {
	return !u.work.void && u.balancer.changes[u.work.mutation.Resource] > u.work.serial
}
