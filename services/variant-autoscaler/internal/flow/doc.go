// Package flow has tests of the whole program at a real API server.
package flow
