package commands

import "time"

// silent records no requests.
type silent struct{}

// Request implements the observer of a client.
func (silent) Request(string, string, time.Duration) {}

// Rate implements the observer of a client.
func (silent) Rate(float64) {}
