package commands

import (
	"errors"
	"fmt"
	"io"

	"fairlead.dev/services/ingress-reconciler/internal/semantics"
)

// answer is the result for a request at one entrance, in the format of -o json.
type answer struct {
	Entrance string     `json:"entrance,omitempty"`
	Object   *reference `json:"object,omitempty"`
	Backend  *reference `json:"backend,omitempty"`
	Path     string     `json:"path,omitempty"` // path that the backend receives
	Error    string     `json:"error,omitempty"`

	err         error
	explanation semantics.Explanation
}

// reference names an object, or the port of a backend.
type reference struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Port      int32  `json:"port,omitempty"`
}

// newAnswer converts an explanation to an answer.
func newAnswer(e semantics.Explanation, err error) answer {
	a := answer{Entrance: e.Entrance.String(), err: err, explanation: e}
	if err != nil {
		a.Error = err.Error()
		return a
	}
	b := e.Answer.Backend
	a.Object = &reference{Kind: e.Winner.Kind, Namespace: e.Winner.Namespace, Name: e.Winner.Name}
	a.Backend = &reference{Kind: string(b.Kind), Namespace: b.Namespace, Name: b.Name, Port: b.Port}
	a.Path = e.Answer.Path
	return a
}

// noEntranceAnswer returns the answer for a host that no entrance serves.
func (o *requestOptions) noEntranceAnswer(host string) answer {
	err := fmt.Errorf("no Gateway, IngressClass or Istio Gateway serves host %s: %w", host, semantics.ErrNoRoute)
	if o.entrance != "" {
		err = fmt.Errorf("%s does not serve host %s: %w", o.entrance, host, semantics.ErrNoRoute)
	}
	return answer{Error: err.Error(), err: err}
}

// answers contains the answers of all entrances. It has at least one element.
type answers []answer

// jsonDocument returns the value that -o json prints.
func (list answers) jsonDocument() any {
	if len(list) == 1 {
		return &list[0]
	}
	return map[string]any{"entrances": []answer(list)}
}

// answerError returns nil if a backend answers at one of the entrances. If no route matches at any entrance, it returns ErrNoRoute.
// Otherwise it returns the other errors.
func (list answers) answerError() error {
	var errs []error
	for i := range list {
		switch a := &list[i]; {
		case a.err == nil:
			return nil
		case !errors.Is(a.err, semantics.ErrNoRoute):
			errs = append(errs, a.err)
		}
	}
	if len(errs) == 0 {
		return ErrNoRoute
	}
	return errors.Join(errs...)
}

// printAll writes the answers as text.
func (list answers) printAll(out io.Writer) {
	for i := range list {
		if i > 0 {
			fmt.Fprintln(out)
		}
		list[i].printAnswer(out)
	}
}

func (a *answer) printAnswer(out io.Writer) {
	if a.Entrance != "" {
		fmt.Fprintln(out, a.Entrance)
	}
	e := &a.explanation
	if e.Winner != nil {
		fmt.Fprintf(out, "  winner:  %s\n", e.Winner)
	}
	if a.err != nil {
		fmt.Fprintf(out, "  error:   %s\n", a.Error)
	} else {
		fmt.Fprintf(out, "  backend: %s\n", e.Answer.Backend)
		fmt.Fprintf(out, "  path:    %s\n", e.Answer.Path)
	}
	for _, l := range e.Losers {
		fmt.Fprintf(out, "  loser:   %s\n", l)
	}
}
