package actuation

// Outcome is what became of a decision.
type Outcome struct {
	// Applied reports whether the decision has taken effect: autoscalers can follow it, or the target has the replicas.
	Applied bool
	Reason  string // a constant
	Message string // what happened, and what to do
	// Event is a message about a change of the target. Empty: it was not changed.
	Event string
}
