package lbapi

// WorkRequest is a mutation that was accepted.
type WorkRequest struct {
	ID             string             `json:"id"`
	LoadBalancerID string             `json:"loadBalancerId"`
	CompartmentID  string             `json:"compartmentId"`
	Type           string             `json:"type"`
	LifecycleState string             `json:"lifecycleState"`
	Message        string             `json:"message"`
	TimeAccepted   string             `json:"timeAccepted"`
	TimeFinished   string             `json:"timeFinished,omitempty"`
	ErrorDetails   []WorkRequestError `json:"errorDetails"`
}

// States of a work request.
const (
	Accepted   = "ACCEPTED"
	InProgress = "IN_PROGRESS"
	Succeeded  = "SUCCEEDED"
	// Failed is the state of a failed work request, too.
)

// WorkRequestError is why a work request failed.
type WorkRequestError struct {
	ErrorCode string `json:"errorCode"` // BAD_INPUT or INTERNAL_ERROR
	Message   string `json:"message"`
}
