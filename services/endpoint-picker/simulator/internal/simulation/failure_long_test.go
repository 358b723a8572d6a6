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
	for name, s := range leavingClients {
		for _, who := range []string{"a tenth", "one client"} {
			t.Run(name+", "+who, func(t *testing.T) {
				t.Parallel()
				checkLeaving(t, s, who, time.Millisecond, 100*time.Millisecond, time.Second)
			})
		}
	}
}

func TestAllServersFail(t *testing.T) {
	t.Parallel()
	for name := range failures {
		checkAllFail(t, name)
	}
}
