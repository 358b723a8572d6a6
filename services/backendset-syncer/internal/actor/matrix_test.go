package actor

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/pkg/testlane"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// A few minutes of fake time: longer than the longest delay after failures.
const patience = 15 * time.Minute

func TestBackendsFollowTheirEndpoints(t *testing.T) {
	t.Parallel()
	inModes(t, 4, func(r *rig) {
		r.want("chat", "1 2 3")
		r.eventually("chat", "1 2 3", patience)
		assert.Equal(r.t, 1, r.accepted("UpdateBackendSet"), "three new backends are one write")
		assert.Equal(r.t, 1, r.accepted())

		r.want("chat", "1 2 3 4")
		r.eventually("chat", "1 2 3 4", patience)
		assert.Equal(r.t, 1, r.accepted("CreateBackend"))

		r.want("chat", "1 2 3 4:finishing")
		r.eventually("chat", "1 2 3 4:drain", patience)
		assert.Equal(r.t, 1, r.accepted("UpdateBackend"))

		r.want("chat", "1 2 3")
		r.eventually("chat", "1 2 3", patience)
		assert.Equal(r.t, 1, r.accepted("DeleteBackend"))

		r.want("chat", "5 6")
		r.eventually("chat", "5 6", patience)
		r.want("chat", "")
		r.eventually("chat", "", patience)
		assert.Empty(r.t, r.has("embed"))
	})
}

func TestASettledSetCausesOnlyReads(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
		time.Sleep(10 * time.Second)
		r.ForgetCalls()
		for range 10 {
			r.want("chat", "1 2")
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		assert.Zero(t, r.accepted())
		assert.LessOrEqual(t, len(r.Calls()), 3*int(time.Hour/verify), "a read of the load balancer and one of its health at each interval")
		assert.GreaterOrEqual(t, len(r.Calls("GetLoadBalancer")), int(time.Hour/verify)-1)
	})
}

// TestNobodyLosesAField compares everything but the backends before and after writes of all kinds.
func TestNobodyLosesAField(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		depth, yes, suite, cookie, path := 3, true, "oci-default-ssl-cipher-suite-v1", "route", "/"
		complete := func(lb *ocilb.LoadBalancer) *ocilb.Error {
			s := lb.BackendSets["chat"]
			s.SSLConfiguration = &ocilb.SSLConfiguration{
				VerifyDepth: &depth, VerifyPeerCertificate: &yes, TrustedCertificateAuthorityIDs: []string{"ocid1.cabundle.oc1..a"},
				Protocols: []string{"TLSv1.2", "TLSv1.3"}, CipherSuiteName: &suite, ServerOrderPreference: "ENABLED",
				HasSessionResumption: &yes,
			}
			s.LBCookieSessionPersistenceConfiguration = &ocilb.LBCookieSessionPersistenceConfiguration{
				CookieName: &cookie, DisableFallback: &yes, MaxAgeInSeconds: &depth, Path: &path, IsSecure: &yes,
			}
			s.HealthChecker.IsForcePlainText = true
			limit := 500
			s.Backends = append(s.Backends,
				ocilb.Backend{Name: "10.0.0.1:8000", IPAddress: "10.0.0.1", Port: 8000, Weight: 1, MaxConnections: &limit})
			return nil
		}
		require.Nil(t, r.Edit(id, complete))
		before := r.Current(id).Clone()
		r.want("chat", "1 2 3")
		r.eventually("chat", "1 2 3", patience)
		after := r.Current(id).Clone()
		kept := after.BackendSets["chat"].Backends[0]
		assert.Equal(t, before.BackendSets["chat"].Backends[0], kept, "its limit of connections stays")
		before.BackendSets["chat"].Backends, after.BackendSets["chat"].Backends = nil, nil
		assert.Equal(t, before, after)
	})
}

func TestHealthCheckers(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		health := &plan.HealthChecker{
			Protocol: "HTTP", URLPath: "/ready", Port: 9000, ReturnCode: 200, Retries: 3, Timeout: 2 * time.Second,
			Interval: 5 * time.Second,
		}
		withHealth := func(w *Wanted) { w.Health = health }
		r.want("chat", "1", withHealth)
		r.eventually("chat", "1", patience)
		got := r.Current(id).BackendSets["chat"].HealthChecker
		assert.Equal(t, ocilb.HealthChecker{
			Protocol: "HTTP", URLPath: "/ready", Port: 9000, ReturnCode: 200, Retries: 3, TimeoutInMillis: 2000, IntervalInMillis: 5000,
			ResponseBodyRegex: "^ok",
		}, got, "a field that the binding does not have stays")
		assert.Equal(t, 1, r.accepted())
		r.want("chat", "1 2", withHealth)
		r.eventually("chat", "1 2", patience)
		assert.Equal(t, 2, r.accepted(), "an equal health checker is no change")
	})
}

// TestACipherSuiteThatCannotBeWritten changes backends one at a time, as replacing the set would lose the suite.
func TestACipherSuiteThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		require.Nil(t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			depth, suite, yes := 1, "oci-customized-ssl-cipher-suite", true
			lb.BackendSets["chat"].SSLConfiguration = &ocilb.SSLConfiguration{
				VerifyDepth: &depth, VerifyPeerCertificate: &yes, CipherSuiteName: &suite,
			}
			return nil
		}))
		r.want("chat", "1 2 3")
		r.eventually("chat", "1 2 3", patience)
		assert.Equal(t, 3, r.accepted("CreateBackend"))
		assert.Equal(t, 3, r.accepted())
		r.want("chat", "1 2 3", func(w *Wanted) {
			w.Health = &plan.HealthChecker{Protocol: "TCP", Retries: 3, Timeout: time.Second, Interval: time.Minute}
		})
		report := r.reason("chat", "RequestRefused", patience)
		assert.Contains(t, report.Message, "oci-customized-ssl-cipher-suite")
	})
}

// faultsOfWrites are faults of single requests. Each may also have its effect.
var faultsOfWrites = map[string][]ocilb.Fault{
	"5xx":        {{Kind: ocilb.FaultStatus, Status: http.StatusInternalServerError, Code: "InternalServerError", Count: 3}},
	"503":        {{Kind: ocilb.FaultStatus, Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable", Count: 3}},
	"409 busy":   {{Kind: ocilb.FaultStatus, Status: http.StatusConflict, Code: "IncorrectState", Count: 3}},
	"409 locked": {{Kind: ocilb.FaultStatus, Status: http.StatusConflict, Code: "LockConflict", Count: 2}},
	"409 token":  {{Kind: ocilb.FaultStatus, Status: http.StatusConflict, Code: "InvalidatedRetryToken", Count: 2}},
	"409 exists": {{Kind: ocilb.FaultStatus, Status: http.StatusConflict, Code: "NotAuthorizedOrResourceAlreadyExists",
		Count: 1}},
	"412": {{Kind: ocilb.FaultStatus, Status: http.StatusPreconditionFailed, Code: "NoEtagMatch", Count: 4}},
	"429": {{Kind: ocilb.FaultStatus, Status: http.StatusTooManyRequests, Code: "TooManyRequests", Count: 5}},
	"429 with Retry-After": {{Kind: ocilb.FaultStatus, Status: http.StatusTooManyRequests, Code: "TooManyRequests", RetryAfter: "20",
		Count: 2}},
	"401":                   {{Kind: ocilb.FaultStatus, Status: http.StatusUnauthorized, Code: "NotAuthenticated", Count: 2}},
	"reset":                 {{Kind: ocilb.FaultReset, Count: 2}},
	"lost answer":           {{Kind: ocilb.FaultLost, Count: 2}},
	"hang":                  {{Kind: ocilb.FaultHang, Count: 1}},
	"hang after its effect": {{Kind: ocilb.FaultLostHang, Count: 1}},
	"a slow answer":         {{Kind: ocilb.FaultDelay, Delay: ocilb.Duration(10 * time.Second), Count: 1}},
	"half an answer":        {{Kind: ocilb.FaultMalformed, Count: 1}},
	"a gateway's error":     {{Kind: ocilb.FaultStatus, Status: http.StatusBadGateway, Count: 2}},
	"500 of everything":     {{Kind: ocilb.FaultStatus, Status: http.StatusInternalServerError, Code: "InternalServerError", Count: 5}},
}

// alike are faults of writes that are to the actor like others.
var alike = []string{"503", "409 locked", "409 token", "429", "reset", "hang", "a slow answer", "a gateway's error", "500 of everything"}

var writeOperations = []string{"UpdateBackendSet", "CreateBackend", "UpdateBackend", "DeleteBackend"}

// TestFaultsOfWrites lets each kind of write fail in ways that differ for the actor, in one of the modes that differ for it. In the long
// lane, each fails in each way in all of them.
func TestFaultsOfWrites(t *testing.T) {
	t.Parallel()
	modes := []string{"queue, etag at both", "parallel, etag at completion, lenient", "busy, etag at acceptance"}
	for i, name := range slices.Sorted(maps.Keys(faultsOfWrites)) {
		if !testlane.Long && slices.Contains(alike, name) {
			continue
		}
		faults := faultsOfWrites[name]
		for n := range testlane.Repetitions(1, len(modes)) {
			modeName := modes[(i+n)%len(modes)]
			t.Run(name+"/"+modeName, func(t *testing.T) {
				t.Parallel()
				inBubble(t, ocilbtest.AllModes()[modeName], func(r *rig) {
					at := map[string]string{"": "1 2", "1 2": "1 2 3", "1 2 3": "1 2 3:finishing", "1 2 3:finishing": "1 2"}
					writes := 0
					for state := ""; ; {
						state = at[state]
						injected := slices.Clone(faults)
						for i := range injected {
							if name != "500 of everything" {
								injected[i].Operations = writeOperations
							}
						}
						r.SetFaults(injected...)
						r.ForgetCalls()
						r.want("chat", state)
						r.eventually("chat", strings.ReplaceAll(state, "finishing", "drain"), patience)
						r.SetFaults()
						assert.LessOrEqual(r.t, r.accepted(), 2, "a write whose answer is lost has no second effect: %s", r.lastCalls())
						if writes++; state == "1 2" && writes > 1 {
							return
						}
					}
				})
			})
		}
	}
}

// TestFaultsOfReads lets reads fail, so that the leader sees little: one kind of read in each way, in the long lane each.
func TestFaultsOfReads(t *testing.T) {
	t.Parallel()
	operations := []string{"GetLoadBalancer", "GetWorkRequest", "ListWorkRequests", "GetBackendSetHealth"}
	for i, name := range slices.Sorted(maps.Keys(faultsOfWrites)) {
		faults := faultsOfWrites[name]
		for n := range testlane.Repetitions(1, len(operations)) {
			operation := operations[(i+n)%len(operations)]
			t.Run(operation+"/"+name, func(t *testing.T) {
				t.Parallel()
				inBubble(t, nil, func(r *rig) {
					injected := slices.Clone(faults)
					for i := range injected {
						injected[i].Operations = []string{operation}
					}
					r.SetFaults(injected...)
					r.want("chat", "1 2")
					r.eventually("chat", "1 2", patience)
					r.want("chat", "1 2 3")
					r.eventually("chat", "1 2 3", patience)
					assert.Equal(t, 2, r.accepted(), r.lastCalls())
				})
			})
		}
	}
}

func TestWorkRequestsFail(t *testing.T) {
	t.Parallel()
	for _, partial := range []bool{false, true} {
		t.Run(fmt.Sprintf("partial effect %t", partial), func(t *testing.T) {
			t.Parallel()
			inModes(t, 1, func(r *rig) {
				m := r.Modes()
				m.FailEvery, m.Partial = 1, partial
				r.SetModes(m)
				r.want("chat", "1 2")
				if !partial {
					report := r.reason("chat", "WorkRequestFailed", patience)
					assert.Contains(r.t, report.Message, "INTERNAL_ERROR")
					time.Sleep(10 * time.Minute)
					assert.LessOrEqual(r.t, r.accepted(), 16, "it is not tried again and again at once")
				}
				m.FailEvery = 3
				r.SetModes(m)
				r.eventually("chat", "1 2", patience)
			})
		})
	}
}

// TestKilledAtEachStep kills the leader after each of its requests, before and after its effect, and lets another one finish.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	inModes(t, 1, func(r *rig) {
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
		time.Sleep(time.Minute)
		state := 3
		for step := range 9 {
			r.ForgetCalls()
			next := fmt.Sprintf("%d %d %d", state, state+1, state+2)
			state += 3
			r.want("chat", next, func(w *Wanted) { w.Drain.Maximum = 0; w.Emptying = false })
			for begun := time.Now(); len(r.Calls()) < step && time.Since(begun) < 5*time.Second; {
				time.Sleep(10 * time.Millisecond)
			}
			r.restart()
			r.want("chat", next)
			r.report("chat", patience, func(report *Report) bool { return report.Synced })
			assert.True(r.t, strings.HasSuffix(r.has("chat"), next), r.has("chat"))
			assert.LessOrEqual(r.t, r.accepted("UpdateBackendSet"), 3,
				"one to add, which may be the earlier leader's, and one to remove what has vanished: %s", r.lastCalls())
		}
	})
}

// TestAWriteOfAnEarlierLeaderIsNotRepeated kills the leader while its work request is in progress.
func TestAWriteOfAnEarlierLeaderIsNotRepeated(t *testing.T) {
	t.Parallel()
	inModes(t, 2, func(r *rig) {
		r.want("chat", "1 2")
		for r.accepted() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		r.restart()
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
		assert.Equal(r.t, 1, r.accepted(), r.lastCalls())
	})
}

// TestTheAnswerOfAWriteIsLostWithItsLeader is the same with a request that was sent, and not answered.
func TestTheAnswerOfAWriteIsLostWithItsLeader(t *testing.T) {
	t.Parallel()
	inModes(t, 2, func(r *rig) {
		r.SetFaults(ocilb.Fault{Operations: writeOperations, Kind: ocilb.FaultLostHang, Count: 1})
		r.want("chat", "1 2")
		time.Sleep(5 * time.Second)
		r.restart()
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
		assert.LessOrEqual(r.t, r.accepted(), 1, r.lastCalls())
	})
}

func TestALeaderThatWasPausedWritesNothing(t *testing.T) {
	t.Parallel()
	inModes(t, 1, func(r *rig) {
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
		r.ForgetCalls()
		fenced := errors.New("the Lease was renewed 20s ago")
		r.fence.Store(&fenced)
		r.want("chat", "7 8")
		report := r.report("chat", patience, func(report *Report) bool { return strings.Contains(report.Message, "renewed") })
		assert.Equal(r.t, "Pending", report.Reason)
		time.Sleep(time.Minute)
		for _, c := range r.Calls() {
			assert.False(r.t, c.Write(), c.Operation)
		}
		assert.Equal(r.t, "1 2", r.has("chat"))
		r.fence.Store(nil)
		r.report("chat", patience, func(report *Report) bool { return report.Synced })
		assert.Contains(r.t, r.has("chat"), "7 8")
	})
}

// TestAnotherClientInALoop lets somebody undo every write.
func TestAnotherClientInALoop(t *testing.T) {
	t.Parallel()
	inModes(t, 1, func(r *rig) {
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
		r.ForgetCalls()
		undo := func(lb *ocilb.LoadBalancer) *ocilb.Error {
			lb.BackendSets["chat"].Backends = []ocilb.Backend{{Name: "10.9.9.9:80", IPAddress: "10.9.9.9", Port: 80, Weight: 1}}
			return nil
		}
		for range int(20 * time.Minute / (5 * time.Second)) {
			require.Nil(r.t, r.Edit(id, undo))
			time.Sleep(5 * time.Second)
		}
		writes := r.accepted()
		assert.LessOrEqual(r.t, writes, 12, "20 minutes of edits every five seconds")
		assert.GreaterOrEqual(r.t, writes, 2, "it is repaired now and then")
		assert.LessOrEqual(r.t, len(r.Calls()), 2000)
		r.report("chat", patience, func(report *Report) bool { return report.Synced })
		assert.Contains(r.t, r.has("chat"), "1 2", "it is repaired when the others end")
	})
}

// TestForeignEditsStay lets another client change other things all the time, by work requests too.
func TestForeignEditsStay(t *testing.T) {
	t.Parallel()
	inModes(t, 2, func(r *rig) {
		retries := 1
		pods := 1
		for range 20 {
			retries++
			require.Nil(r.t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
				lb.BackendSets["chat"].HealthChecker.Retries = retries
				lb.BackendSets["embed"].HealthChecker.Retries = retries
				return nil
			}))
			pods += 2
			r.want("chat", fmt.Sprintf("1 2 %d %d", pods, pods+1))
			time.Sleep(700 * time.Millisecond)
		}
		r.report("chat", patience, func(report *Report) bool { return report.Synced })
		assert.Equal(r.t, retries, r.Current(id).BackendSets["chat"].HealthChecker.Retries)
		assert.Equal(r.t, retries, r.Current(id).BackendSets["embed"].HealthChecker.Retries)
	})
}

func TestDriftIsRepaired(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
		require.Nil(t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			lb.BackendSets["chat"].Backends = lb.BackendSets["chat"].Backends[:1]
			return nil
		}))
		took := r.eventually("chat", "1 2", patience)
		assert.LessOrEqual(t, took, verify+30*time.Second)
	})
}

// TestARollOutIsMerged replaces 100 pods, in the long lane 1000 of 400 replicas, 10 % at a time.
func TestARollOutIsMerged(t *testing.T) {
	t.Parallel()
	modes := ocilb.DefaultOptions().Modes
	modes.LatencyTail = modes.Latency
	inBubble(t, &modes, func(r *rig) {
		r.limits.PerSet, r.limits.Total = 1024, 1024
		modes.Limits.BackendsPerSet, modes.Limits.Backends = 1024, 1024
		r.SetModes(modes)
		r.drain.Maximum = 20 * time.Second
		const batch = 4 // pods in one event of a slice
		replicas, replaced := testlane.Repetitions(100, 400), testlane.Repetitions(100, 1000)
		var pods []string
		for n := range replicas {
			pods = append(pods, strconv.Itoa(n+1))
		}
		r.want("chat", strings.Join(pods, " "))
		r.report("chat", patience, func(report *Report) bool { return report.Synced })
		r.ForgetCalls()
		begun := time.Now()
		old := 0
		for n := range replaced {
			pods[old] += ":finishing"
			pods = append(pods, strconv.Itoa(replicas+n+1))
			if old++; old > 40 { // as many old ones end
				pods, old = pods[1:], old-1
			}
			if time.Sleep(100 * time.Millisecond); n%batch == 0 {
				r.want("chat", strings.Join(pods, " "))
			}
		}
		r.want("chat", strings.Join(pods, " "))
		time.Sleep(100 * time.Millisecond)
		r.want("chat", strings.Join(pods[old:], " "))
		r.report("chat", patience, func(report *Report) bool { return report.Synced })
		duration := time.Since(begun)
		assert.LessOrEqual(t, r.accepted(), int(duration/(3*time.Second))+2, "in %s", duration)
		assert.Len(t, strings.Fields(r.has("chat")), replicas)
	})
}

// TestASetThatChangesAllTheTimeDoesNotHoldUpOthers shares a load balancer with one whose pods come and go.
func TestASetThatChangesAllTheTimeDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		begun, pods := time.Now(), 0
		for r.has("embed") != "1" {
			pods += 2
			r.want("chat", fmt.Sprintf("%d %d", pods, pods+1))
			if pods == 40 {
				r.want("embed", "1")
			}
			time.Sleep(100 * time.Millisecond)
			require.Less(t, time.Since(begun), 2*time.Minute, r.lastCalls())
		}
	})
}

// TestTheFirstEventIsNotDelayed measures the time from an event to its write.
func TestTheFirstEventIsNotDelayed(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
		time.Sleep(time.Minute)
		r.ForgetCalls()
		begun := time.Now()
		r.want("chat", "1 2 3 4")
		for len(r.Calls("UpdateBackendSet")) == 0 {
			time.Sleep(time.Millisecond)
		}
		assert.Less(t, time.Since(begun), 100*time.Millisecond)
	})
}

// TestSustainedThrottling answers most requests with 429 for minutes.
func TestSustainedThrottling(t *testing.T) {
	t.Parallel()
	for _, retryAfter := range []string{"", "5"} {
		inBubble(t, nil, func(r *rig) {
			r.SetThrottle(ocilb.Throttle{PerSecond: 0.3, Burst: 1, RetryAfter: retryAfter})
			r.want("chat", "1 2")
			r.reason("chat", "RateLimited", patience)
			time.Sleep(5 * time.Minute)
			assert.LessOrEqual(t, len(r.Calls()), 300)
			r.SetThrottle(ocilb.Throttle{})
			r.eventually("chat", "1 2", 3*time.Minute)
			r.meter.mu.Lock()
			assert.Less(t, r.meter.rate, 100.0, "it recovers slowly")
			r.meter.mu.Unlock()
		})
	}
}

func TestProblemsOfTheLoadBalancer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		set     string
		edit    func(lb *ocilb.LoadBalancer)
		faults  []ocilb.Fault
		reason  string
		message string
	}{
		{name: "no such set", set: "images", reason: "BackendSetNotFound", message: "it has chat, embed"},
		{
			name: "being deleted", set: "chat", edit: func(lb *ocilb.LoadBalancer) { lb.LifecycleState = "DELETING" },
			reason: "LoadBalancerUnavailable", message: "DELETING",
		},
		{
			name: "not authenticated", set: "chat", faults: []ocilb.Fault{{Kind: ocilb.FaultStatus, Status: 401, Code: "NotAuthenticated"}},
			reason: "AuthFailed", message: "check the credentials",
		},
		{
			name: "not found", set: "chat", faults: []ocilb.Fault{{Kind: ocilb.FaultStatus, Status: 404, Code: "NotAuthorizedOrNotFound"}},
			reason: "LoadBalancerUnavailable", message: "IAM policies",
		},
		{
			name: "outage", set: "chat", faults: []ocilb.Fault{{Kind: ocilb.FaultReset}}, reason: "LoadBalancerUnavailable",
			message: "keeps its backends",
		},
		{
			name: "refused", set: "chat",
			faults: []ocilb.Fault{{Operations: writeOperations, Kind: ocilb.FaultStatus, Status: 400, Code: "InvalidParameter"}},
			reason: "RequestRefused", message: "InvalidParameter",
		},
		{
			name: "quota", set: "chat",
			faults: []ocilb.Fault{{Operations: writeOperations, Kind: ocilb.FaultStatus, Status: 400, Code: "LimitExceeded"}},
			reason: "CapacityExceeded", message: "LimitExceeded",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, nil, func(r *rig) {
				if tt.edit != nil {
					require.Nil(t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error { tt.edit(lb); return nil }))
				}
				r.SetFaults(tt.faults...)
				r.want(tt.set, "1 2")
				report := r.reason(tt.set, tt.reason, patience)
				assert.Contains(t, report.Message, tt.message)
				assert.False(t, report.Synced)
				r.ForgetCalls()
				time.Sleep(time.Hour)
				assert.LessOrEqual(t, len(r.Calls()), 200, "it is not tried again and again")
				r.SetFaults()
				if tt.set == "chat" && tt.edit == nil {
					r.eventually("chat", "1 2", patience)
				}
			})
		})
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	modes := ocilb.DefaultOptions().Modes
	modes.Limits.BackendsPerSet, modes.Limits.Backends = 4, 6
	inBubble(t, &modes, func(r *rig) {
		r.limits.PerSet, r.limits.Total, r.limits.Reserved = 4, 6, 0
		r.drain.Maximum = time.Hour
		r.want("chat", "1 2 3 4 5")
		report := r.report("chat", patience, func(report *Report) bool { return report.Reason == "CapacityExceeded" && report.Active == 4 })
		assert.Equal(t, 1, report.Excess)
		assert.Equal(t, "1 2 3 4", r.has("chat"))
		r.want("chat", "1 2 3 4")
		r.eventually("chat", "1 2 3 4", patience)

		r.want("chat", "1:finishing 2:finishing 3:finishing 4:finishing 5 6 7 8")
		took := r.eventually("chat", "5 6 7 8", patience)
		assert.Less(t, took, time.Minute, "the roll-out does not wait for the drain")
		assert.Contains(t, r.actors.BackendSetReport(Key{id, "chat"}).Message,
			"4 draining backends were removed before the end of their drain time")

		r.want("embed", "11 12 13")
		r.report("embed", patience, func(report *Report) bool { return report.Synced })
		assert.Equal(t, "11 12 13", r.has("embed"))
		report = r.report("chat", patience, func(report *Report) bool { return report.Reason == "CapacityExceeded" && report.Active == 3 })
		assert.Equal(t, "5 6 7", r.has("chat"), "the sets share the load balancer")
		assert.Equal(t, 1, report.Excess)
		for _, c := range r.Calls() {
			assert.NotEqual(t, "LimitExceeded", c.Code)
		}
	})
}

// TestUnreachableBackends lets the load balancer check pods that it cannot reach, and then one that it can.
func TestUnreachableBackends(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		require.Nil(t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			lb.BackendSets["chat"].HealthChecker.ReturnCode = http.StatusOK
			return listen(lb)
		}))
		time.Sleep(time.Second)
		r.want("chat", "1 2")
		report := r.reason("chat", "BackendsUnreachable", patience)
		assert.Contains(t, report.Message, "reports 2 backends of ready pods as critical: CONNECT_FAILED")
		assert.Contains(t, report.Message, "VCN-native pod networking")
		assert.Empty(t, report.Serving)
		r.network.Serve(r.t, at(1).String(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("ok"))
		}))
		report = r.report("chat", patience, func(report *Report) bool { return len(report.Serving) == 1 })
		assert.True(t, report.Serving[at(1)])
		assert.Contains(t, report.Message, "1 backend of a ready pod")
	})
}

// TestASetThatBecomesUsed has a backend that nobody checks, because nothing uses the set. When a listener does, the backend is not healthy.
func TestASetThatBecomesUsed(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.want("chat", "1")
		report := r.report("chat", patience, func(report *Report) bool { return len(report.Serving) == 1 })
		assert.False(t, report.Used)
		require.Nil(t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			lb.BackendSets["chat"].HealthChecker.ReturnCode = http.StatusOK
			return listen(lb)
		}))
		report = r.report("chat", 10*time.Minute, func(report *Report) bool { return report.Used })
		assert.Empty(t, report.Serving, "at no time")
		r.reason("chat", "BackendsUnreachable", patience)
		r.network.Serve(r.t, at(1).String(),
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }))
		r.report("chat", patience, func(report *Report) bool { return report.Serving[at(1)] })
	})
}

// TestANewLeaderWaitsForNewBackends changes the leader after a new backend is in the set, and before it is healthy.
func TestANewLeaderWaitsForNewBackends(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		require.Nil(t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			lb.BackendSets["chat"].HealthChecker = ocilb.HealthChecker{
				Protocol: "TCP", ReturnCode: 200, Retries: 3, TimeoutInMillis: 3000, IntervalInMillis: 30_000, ResponseBodyRegex: ".*",
			}
			return listen(lb)
		}))
		time.Sleep(2 * time.Second)
		r.network.Serve(r.t, at(1).String(), http.NotFoundHandler())
		r.network.Serve(r.t, at(2).String(), http.NotFoundHandler())
		r.want("chat", "1")
		r.report("chat", time.Minute, func(report *Report) bool { return len(report.Serving) == 1 })
		r.want("chat", "1 2 3") // nothing listens at 3
		for r.has("chat") != "1 2 3" {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * time.Second) // reads show it
		r.restart()
		r.want("chat", "1 2 3")
		r.report("chat", time.Minute, func(report *Report) bool { return len(report.Serving) == 2 })
		r.reason("chat", "BackendsUnreachable", patience)
	})
}

// TestASetOfOthers has backends that are not endpoints, until its owner takes it.
func TestASetOfOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		require.Nil(t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			lb.BackendSets["chat"].Backends = []ocilb.Backend{
				{Name: "10.0.0.1:8000", IPAddress: "10.0.0.1", Port: 8000, Weight: 1},
				{Name: "10.0.0.9:8000", IPAddress: "10.0.0.9", Port: 8000, Weight: 1},
			}
			return nil
		}))
		time.Sleep(time.Second)
		watching := func(w *Wanted) { w.Watching = true }
		r.want("chat", "1 2", watching)
		report := r.reason("chat", "Conflict", patience)
		assert.Equal(t, 1, report.Foreign)
		assert.Contains(t, report.Message, "1 backend that is not an endpoint of the Service: 10.0.0.9:8000")
		r.want("chat", "1 9", watching)
		report = r.report("chat", patience, func(report *Report) bool { return report.Known && report.Foreign == 0 })
		assert.False(t, report.Synced, "it is not taken yet")
		time.Sleep(time.Hour)
		assert.Zero(t, r.accepted())
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
	})
}

// TestAnAddressThatAnotherServiceGets loses all endpoints without seeing one terminate, and then the address of one.
func TestAnAddressThatAnotherServiceGets(t *testing.T) {
	t.Parallel()
	inModes(t, 2, func(r *rig) {
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", time.Minute)
		r.want("chat", "")
		report := r.report("chat", time.Second, func(x *Report) bool { return x.HoldsVanished })
		assert.False(r.t, report.Synced)
		assert.Equal(r.t, "Pending: 2 backends have no endpoint, and stay for 30s: endpoints that vanish may come back",
			report.Reason+": "+report.Message)
		time.Sleep(10 * time.Second) // no timer of the actor is left but that of the hold
		r.others.Store(at(2).Addr(), plan.Occupant{Service: "others/embed"})
		begun := time.Now()
		r.actors.RecheckAddresses([]string{at(9).Addr().String(), at(2).Addr().String()})
		for r.has("chat") != "1" {
			require.Less(r.t, time.Since(begun), plan.VanishGracePeriod/2, "backends %s; calls %s", r.has("chat"), r.lastCalls())
			time.Sleep(50 * time.Millisecond)
		}
		r.report("chat", 5*time.Second, func(x *Report) bool {
			return x.HoldsVanished && strings.HasPrefix(x.Message, "1 backend has no endpoint, and stays")
		})
		r.want("chat", "1")
		r.eventually("chat", "1", time.Minute)
	})
}

// TestAnAddressOnTwoLoadBalancers is that of a backend of each of them, until another Service gets it.
func TestAnAddressOnTwoLoadBalancers(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		const second = id + "b"
		r.Create(second, ocilbtest.Compartment, "models")
		require.Nil(r.t, r.Edit(second, furnish))
		time.Sleep(time.Minute) // reads show it
		held := func(lb string) bool {
			report := r.actors.BackendSetReport(Key{lb, "chat"})
			return report != nil && report.HoldsVanished
		}
		for _, lb := range []string{id, second} {
			r.actors.WantSet(Key{lb, "chat"}, r.wanted("1"))
		}
		time.Sleep(10 * time.Second)
		for _, lb := range []string{id, second} {
			r.actors.WantSet(Key{lb, "chat"}, r.wanted(""))
		}
		time.Sleep(10 * time.Second)
		assert.True(r.t, held(id) && held(second))
		r.others.Store(at(1).Addr(), plan.Occupant{Service: "others/embed"})
		r.actors.RecheckAddresses([]string{at(1).Addr().String()})
		time.Sleep(10 * time.Second)
		assert.Empty(r.t, r.Current(id).BackendSets["chat"].Backends)
		assert.Empty(r.t, r.Current(second).BackendSets["chat"].Backends)
	})
}

// TestAnotherService follows a set whose owner names another Service: the pods of the former one are no other pods.
func TestAnotherService(t *testing.T) {
	t.Parallel()
	inModes(t, 2, func(r *rig) {
		r.want("chat", "1")
		r.eventually("chat", "1", time.Minute)
		r.others.Store(at(1).Addr(), plan.Occupant{Service: "models/own", Pod: "first"})
		r.want("chat", "2", func(w *Wanted) { w.Services = []string{"models/next"} })
		r.report("chat", plan.VanishGracePeriod/2, func(x *Report) bool { return x.HoldsVanished && r.has("chat") == "1:drain 2" })
		r.want("chat", "2", func(w *Wanted) { w.Services, w.Weight = []string{"models/next"}, 2 })
		time.Sleep(plan.VanishGracePeriod / 4)
		assert.Equal(r.t, "1:drain 2", r.has("chat"))
		r.others.Store(at(1).Addr(), plan.Occupant{Service: "models/own", Pod: "second"})
		r.actors.RecheckAddresses([]string{at(1).Addr().String()})
		r.eventually("chat", "2", plan.VanishGracePeriod/4)
	})
}

// TestBackendsOfTheOwnerBefore drain, whoever has their addresses when the new owner takes the set.
func TestBackendsOfTheOwnerBefore(t *testing.T) {
	t.Parallel()
	inModes(t, 2, func(r *rig) {
		claimed := func(w *Wanted) { w.Claimed = time.Now() }
		r.want("chat", "1", claimed)
		r.eventually("chat", "1", time.Minute)
		time.Sleep(time.Hour)
		r.others.Store(at(1).Addr(), plan.Occupant{Service: "others/before", Pod: "first"})
		r.want("chat", "2", claimed)
		r.report("chat", plan.VanishGracePeriod/2, func(x *Report) bool { return x.HoldsVanished && r.has("chat") == "1:drain 2" })
		r.others.Store(at(1).Addr(), plan.Occupant{Service: "others/before", Pod: "second"})
		r.actors.RecheckAddresses([]string{at(1).Addr().String()})
		r.eventually("chat", "2", plan.VanishGracePeriod/4)
	})
}

// TestWishesDiffer by what decides which backends are taken.
func TestWishesDiffer(t *testing.T) {
	t.Parallel()
	w := Wanted{Services: []string{"models/own"}, Claimed: time.Unix(1, 0)}
	assert.True(t, w.isSameAs(&Wanted{Services: []string{"models/own"}, Claimed: time.Unix(1, 0).UTC(), Since: time.Unix(2, 0)}))
	assert.False(t, w.isSameAs(&Wanted{Services: []string{"models/next"}, Claimed: time.Unix(1, 0)}))
	assert.False(t, w.isSameAs(&Wanted{Services: []string{"models/own"}, Claimed: time.Unix(2, 0)}))
}

// TestAWishThatReturns: an owner has wanted something else meanwhile, and waits for a report about its newest wish.
func TestAWishThatReturns(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	changed := 0
	a := newActor(&Params{Log: zap.NewNop(), Observer: &meter{}, Clock: clock.RealClock{}, Changed: func(Key) { changed++ }}, &mu, id)
	for _, wish := range []*Wanted{{Weight: 1}, {Weight: 1}} {
		a.sets["chat"], a.inbox.sets["chat"] = &set{desired: wish}, wish
		a.publishReports()
		newest := a.reports["chat"].wanted
		require.Same(t, wish, newest)
		a.publishReports()
	}
	assert.Equal(t, 2, changed, "each once")
}

func TestEmptying(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
		r.want("chat", "1 2", func(w *Wanted) { w.Emptying, w.Drain.Minimum = true, 10*time.Second })
		r.eventually("chat", "1:drain 2:drain", patience)
		r.eventually("chat", "", patience)
	})
}

// TestARetiredSetThatIsUsed has a set that its owner drains because it saw no use of it, while a listener has begun to use it.
func TestARetiredSetThatIsUsed(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		r.want("chat", "1 2")
		r.eventually("chat", "1 2", patience)
		require.Nil(t, r.Edit(id, listen))
		time.Sleep(2 * verify)
		r.want("chat", "", func(w *Wanted) { w.Emptying, w.Retired = true, true })
		time.Sleep(time.Hour)
		assert.Equal(t, "1 2", r.has("chat"), "requests reach it")
		require.Nil(t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
			delete(lb.Listeners, "http")
			return nil
		}))
		r.eventually("chat", "", patience)
	})
}

// TestRandomEventsAndFaults lets anything happen, and then nothing: the sets converge, with a bounded number of writes. The long lane has a
// seed for each mode.
func TestRandomEventsAndFaults(t *testing.T) {
	t.Parallel()
	modes := modes(1)
	for seed, name := range slices.Sorted(maps.Keys(modes)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, modes[name], func(r *rig) {
				random := rand.New(rand.NewPCG(uint64(seed), 7))
				var kinds []string
				for kind := range faultsOfWrites {
					kinds = append(kinds, kind)
				}
				slices.Sort(kinds)
				changes := 0
				wanted := map[string]string{}
				for range testlane.Repetitions(20, 40) {
					switch random.IntN(10) {
					case 0:
						f := slices.Clone(faultsOfWrites[kinds[random.IntN(len(kinds))]])
						f[0].Rate = 0.5
						r.SetFaults(f...)
					case 1:
						r.restart()
						for _, set := range slices.Sorted(maps.Keys(wanted)) {
							r.want(set, wanted[set])
						}
					case 2:
						require.Nil(t, r.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
							lb.BackendSets["chat"].HealthChecker.Retries = 1 + random.IntN(9)
							if s := lb.BackendSets["embed"]; len(s.Backends) > 0 {
								s.Backends = s.Backends[1:]
							}
							return nil
						}))
						changes++
					case 3:
						m := r.Modes()
						m.FailEvery = random.IntN(4)
						m.Partial = random.IntN(2) == 0
						r.SetModes(m)
					default:
						var pods []string
						for n := range 12 {
							if s := random.IntN(6); s < 4 {
								pods = append(pods, fmt.Sprintf("%d%s", n+1, []string{"", "", ":finishing", ":notready"}[s]))
							}
						}
						set := []string{"chat", "embed"}[random.IntN(2)]
						wanted[set] = strings.Join(pods, " ")
						r.want(set, wanted[set])
						changes++
					}
					time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
				}
				r.SetFaults()
				m := r.Modes()
				m.FailEvery = 0
				r.SetModes(m)
				r.want("chat", "1 2 3")
				r.want("embed", "7 8")
				r.eventually("chat", "1 2 3", time.Hour)
				r.eventually("embed", "7 8", time.Hour)
				assert.LessOrEqual(t, r.accepted(), 3*changes+20)
				before := r.accepted()
				time.Sleep(time.Hour)
				assert.LessOrEqual(t, r.accepted(), before)
			})
		})
	}
}
