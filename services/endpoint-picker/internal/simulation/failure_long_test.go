//go:build long

package simulation

import (
	"testing"
	"time"
)

func TestFailingServerGetsFewRequests(t *testing.T) {
	t.Parallel()
	for _, c := range failingCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

func TestClientsThatLeaveEjectNobody(t *testing.T) {
	t.Parallel()
	for name := range leavingClients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLeaving(t, name, time.Millisecond, 100*time.Millisecond, time.Second)
		})
	}
}
