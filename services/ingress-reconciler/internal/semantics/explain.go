package semantics

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	istiov1 "istio.io/client-go/pkg/apis/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
)

// Explanation is an Answer with the rules that match the request.
type Explanation struct {
	Entrance Entrance
	Answer   Answer
	Winner   *Candidate
	Losers   []Candidate // other rules that match, by descending precedence; at most maxLosers
}

// maxLosers limits the number of losers, to keep an explanation readable.
const maxLosers = 10

// Candidate is a rule that matches a request.
type Candidate struct {
	Kind, Namespace, Name string  // of the object
	Rule                  string  // description of the match, such as "rule 0: PathPrefix /v1"
	Backend               Backend // zero if the backend is not known
	Reason                string  // why the candidate loses to the winner; empty for the winner
}

// String returns the candidate in one line.
func (c Candidate) String() string {
	text := c.Kind + " " + c.Namespace + "/" + c.Name + ", " + c.Rule
	if c.Backend != (Backend{}) {
		text += " -> " + c.Backend.String()
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

// contender is a rule of an object that matches a request.
type contender interface {
	sourceObject() (kind string, o metav1.Object)
	describeRule() string
	// resolveAnswer applies the rule to the request.
	resolveAnswer() (*Answer, error)
	// losesBy explains why the contender loses to the winner.
	losesBy(winner contender) string
}

// ExplainRequest returns the answer to a request, and explains it. Each error wraps one of the errors of this package; the Explanation then
// contains the results up to it.
func (w *World) ExplainRequest(r Request) (Explanation, error) {
	e := Explanation{Entrance: r.Entrance}
	p, err := parseRequest(&r)
	if err != nil {
		return e, fmt.Errorf("request: %w", err)
	}
	contenders, err := w.routeRequest(p)
	e.addCandidates(contenders)
	if err == nil && len(contenders) == 0 {
		err = fmt.Errorf("%s, host %s, path %s: %w", p.entrance, p.host, p.path, ErrNoRoute)
	}
	if err != nil {
		return e, err
	}
	a, err := resolveContender(contenders[0])
	if err != nil {
		return e, err
	}
	e.Answer = *a
	if p.rawQuery != "" {
		e.Answer.Path += "?" + p.rawQuery
	}
	return e, nil
}

func (e *Explanation) addCandidates(contenders []contender) {
	for i, c := range contenders {
		kind, o := c.sourceObject()
		candidate := Candidate{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), Rule: c.describeRule()}
		if a, err := c.resolveAnswer(); err == nil {
			candidate.Backend = a.Backend
		}
		switch {
		case i == 0:
			e.Winner = &candidate
		case i > maxLosers:
			return
		default:
			candidate.Reason = c.losesBy(contenders[0])
			e.Losers = append(e.Losers, candidate)
		}
	}
}

// asContenders converts a list.
func asContenders[T contender](list []T) []contender {
	contenders := make([]contender, len(list))
	for i, c := range list {
		contenders[i] = c
	}
	return contenders
}

// resolveContender applies the rule of a contender to the request. Errors name the object and the rule.
func resolveContender(c contender) (*Answer, error) {
	a, err := c.resolveAnswer()
	if err != nil {
		kind, o := c.sourceObject()
		return nil, fmt.Errorf("%s: %s: %w", objectIdentity(kind, o), c.describeRule(), err)
	}
	return a, nil
}

// routeRequest finds the contenders at the entrance of a request, the winner first.
func (w *World) routeRequest(p *request) ([]contender, error) {
	e := p.entrance
	switch e {
	case Entrance{Gateway: e.Gateway, Port: e.Port}:
		if e.Gateway != (types.NamespacedName{}) {
			return w.throughGateway(p)
		}
	case Entrance{IngressClass: e.IngressClass}:
		return w.throughIngress(p)
	case Entrance{IstioGateway: e.IstioGateway}:
		return w.throughIstio(p)
	}
	return nil, fmt.Errorf("entrance %+v is not one Gateway, one IngressClass or one Istio Gateway: %w", e, ErrInvalid)
}

// EntrancesFor returns the entrances for a host: Gateways with a listener for the host, and IngressClasses and Istio Gateways with an
// object for the host. The entrances are sorted by kind and name.
func (w *World) EntrancesFor(host string) ([]Entrance, error) {
	host, err := parseHost(host)
	if err != nil {
		return nil, err
	}
	var entrances []Entrance
	for name, g := range w.gateways {
		for i := range g.Spec.Listeners {
			if l := &g.Spec.Listeners[i]; servesHTTP(l) && gatewayapi.HostnamesIntersect(gatewayapi.ListenerHostname(l), host) {
				entrances = append(entrances, Entrance{Gateway: name})
				break
			}
		}
	}
	for name, x := range w.byClass {
		if name != "" && x.servesHost(host) {
			entrances = append(entrances, Entrance{IngressClass: name})
		}
	}
	for name, x := range w.istio {
		x.forEachCovering(host, func(string, []*istiov1.VirtualService) bool {
			entrances = append(entrances, Entrance{IstioGateway: name})
			return false
		})
	}
	slices.SortFunc(entrances, func(a, b Entrance) int { return strings.Compare(a.String(), b.String()) })
	return entrances, nil
}

// HasListener reports whether a Gateway has a listener on a port.
func (w *World) HasListener(gateway types.NamespacedName, port int32) bool {
	g := w.gateways[gateway]
	return g != nil && slices.ContainsFunc(g.Spec.Listeners, func(l gatewayv1.Listener) bool { return l.Port == port })
}

// checkAgreement returns an error if two data planes choose different rules, and the rules give different answers.
func checkAgreement(first contender, by string, other contender, otherBy string) error {
	name := func(c contender) string {
		kind, o := c.sourceObject()
		return objectIdentity(kind, o) + ", " + c.describeRule()
	}
	if name(first) == name(other) || haveSameAnswer(first, other) {
		return nil
	}
	return fmt.Errorf("%s %s wins, %s %s: %w", by, name(first), otherBy, name(other), ErrAmbiguous)
}

func haveSameAnswer(a, b contender) bool {
	x, err := a.resolveAnswer()
	if err != nil {
		return false
	}
	y, err := b.resolveAnswer()
	return err == nil && reflect.DeepEqual(x, y)
}
