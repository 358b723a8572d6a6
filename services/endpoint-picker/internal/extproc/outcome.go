package extproc

// OutcomeKind says how far a stream came. Its values are those of a metric's label.
type OutcomeKind string

// The outcomes of a stream.
const (
	Completed   OutcomeKind = "completed"   // the end of the response was seen
	Interrupted OutcomeKind = "interrupted" // the stream ended in the middle of the response
	Unseen      OutcomeKind = "unseen"      // an endpoint was picked, and the response was not shown
	Unpicked    OutcomeKind = "unpicked"    // the request ended before its endpoint could be picked
	Refused     OutcomeKind = "refused"     // it was answered here
	Failed      OutcomeKind = "failed"      // the gateway broke the protocol, or sent what cannot be received
)

// OutcomeKinds are all of them.
func OutcomeKinds() []OutcomeKind {
	return []OutcomeKind{Completed, Interrupted, Unseen, Unpicked, Refused, Failed}
}

// An Outcome is what is left of a stream.
type Outcome struct {
	Kind   OutcomeKind
	Status int  // of the response, 0 if it was not seen
	Moved  bool // another endpoint than the picked one served the response
}

func (m *Machine) outcome() OutcomeKind {
	switch {
	case m.request == requestRefused:
		return Refused
	case m.lease == nil:
		return Unpicked
	case m.response >= responseWhole:
		return Completed
	case m.response == responseOpen && m.modes.Response != None:
		return Interrupted
	}
	return Unseen
}
