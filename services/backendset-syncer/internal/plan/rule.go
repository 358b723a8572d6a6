package plan

// Rule is a rule of a routing policy.
type Rule struct{ Name, Condition, Set string }

// Redirect redirects all requests to HTTPS.
type Redirect struct {
	Port, Code int
}
