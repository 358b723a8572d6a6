package commands

import "time"

// silent records no requests.
type silent struct{}

// ObserveRequest implements the observer of a client.
func (silent) ObserveRequest(string, string, time.Duration) {}

// SetRateLimit implements the observer of a client.
func (silent) SetRateLimit(float64) {}
