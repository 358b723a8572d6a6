package ocilb_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

// startWithSets returns an emulator for a bubble that has the backend sets "chat" and "embed".
func startWithSets(t *testing.T, change func(m *ocilb.Modes)) *ocilbtest.Service {
	t.Helper()
	o := quick()
	s := start(t, o)
	require.Nil(t, s.Edit(id, func(lb *ocilb.LoadBalancer) *ocilb.Error {
		for _, name := range []string{"chat", "embed"} {
			lb.BackendSets[name] = &ocilb.BackendSet{
				Name: name, Policy: "ROUND_ROBIN", Backends: []ocilb.Backend{},
				HealthChecker: ocilb.HealthChecker{Protocol: "TCP", Retries: 3, TimeoutInMillis: 3000, IntervalInMillis: 10_000},
			}
		}
		return nil
	}))
	if change != nil {
		change(&o.Modes)
	}
	s.SetModes(o.Modes)
	s.ForgetCalls()
	return s
}

// put replaces the backends of a set.
func put(t *testing.T, s *ocilbtest.Service, set string, change func(r *loadbalancer.UpdateBackendSetRequest), ports ...int) (loadbalancer.UpdateBackendSetResponse, error) {
	t.Helper()
	r := loadbalancer.UpdateBackendSetRequest{
		LoadBalancerId: common.String(id), BackendSetName: &set, UpdateBackendSetDetails: loadbalancer.UpdateBackendSetDetails{
			Policy: common.String("ROUND_ROBIN"), Backends: []loadbalancer.BackendDetails{}, HealthChecker: &loadbalancer.HealthCheckerDetails{Protocol: common.String("TCP")},
		},
	}
	for _, port := range ports {
		r.Backends = append(r.Backends, loadbalancer.BackendDetails{IpAddress: common.String("10.0.0.1"), Port: common.Int(port)})
	}
	if change != nil {
		change(&r)
	}
	return s.Client.UpdateBackendSet(t.Context(), r)
}

// assertRefused checks the status and the code of an error of the service.
func assertRefused(t *testing.T, err error, status int, code string) {
	t.Helper()
	refused, ok := common.IsServiceError(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, status, refused.GetHTTPStatusCode())
	assert.Equal(t, code, refused.GetCode())
	assert.NotEmpty(t, refused.GetOpcRequestID())
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mode       ocilb.Concurrency
		code       string        // of a second mutation; empty if it is accepted
		other, one time.Duration // until a mutation of another set is done, and then another one of the first set
	}{
		{mode: ocilb.Queue, other: 2 * time.Second, one: 3 * time.Second},
		{mode: ocilb.Parallel, other: time.Second, one: 2 * time.Second},
		{mode: ocilb.Busy, code: "IncorrectState"},
		{mode: ocilb.Conflict, code: "Conflict"},
	}
	for _, tt := range tests {
		t.Run(string(tt.mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startWithSets(t, func(m *ocilb.Modes) { m.Concurrency = tt.mode })
				begun := time.Now()
				first, err := put(t, s, "chat", nil, 1)
				require.NoError(t, err)
				second, err := put(t, s, "embed", nil, 2)
				if tt.code != "" {
					assertRefused(t, err, http.StatusConflict, tt.code)
					await(t, s, first.OpcWorkRequestId)
					_, err = put(t, s, "embed", nil, 2)
					require.NoError(t, err)
					return
				}
				require.NoError(t, err)
				third, err := put(t, s, "chat", nil, 3)
				require.NoError(t, err)
				await(t, s, second.OpcWorkRequestId)
				assert.Equal(t, tt.other, time.Since(begun).Truncate(time.Second))
				await(t, s, third.OpcWorkRequestId)
				assert.Equal(t, tt.one, time.Since(begun).Truncate(time.Second))
				assert.Equal(t, "10.0.0.1:3", *getSet(t, s, "chat").Backends[0].Name)
			})
		})
	}
}

func TestEtagIsThatOfTheWholeLoadBalancer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mode                  ocilb.EtagChange
		accepted, whenTheyEnd bool // whether the first ETag matches no more
	}{
		{mode: ocilb.AtAcceptance, accepted: true, whenTheyEnd: true},
		{mode: ocilb.AtCompletion, whenTheyEnd: true},
		{mode: ocilb.AtBoth, accepted: true, whenTheyEnd: true},
	}
	for _, tt := range tests {
		t.Run(string(tt.mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startWithSets(t, func(m *ocilb.Modes) { m.EtagChange = tt.mode })
				etag := getSet(t, s, "embed").ETag
				first, err := put(t, s, "chat", nil, 1)
				require.NoError(t, err)
				withEtag := func(r *loadbalancer.UpdateBackendSetRequest) { r.IfMatch = etag }
				check := func(refused bool) {
					_, err := put(t, s, "embed", withEtag, 1)
					if refused {
						assertRefused(t, err, http.StatusPreconditionFailed, "NoEtagMatch")
						return
					}
					require.NoError(t, err)
				}
				check(tt.accepted)
				await(t, s, first.OpcWorkRequestId)
				check(tt.whenTheyEnd)
				etag = getSet(t, s, "chat").ETag
				if tt.mode != ocilb.AtCompletion {
					check(false)
				}
			})
		})
	}
}

func TestRetryTokens(t *testing.T) {
	t.Parallel()
	token := func(r *loadbalancer.UpdateBackendSetRequest) { r.OpcRetryToken = common.String("token") }
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		first, err := put(t, s, "chat", token, 1)
		require.NoError(t, err)
		again, err := put(t, s, "chat", token, 1)
		require.NoError(t, err)
		assert.Equal(t, *first.OpcWorkRequestId, *again.OpcWorkRequestId)
		await(t, s, first.OpcWorkRequestId)
		again, err = put(t, s, "chat", token, 1)
		require.NoError(t, err)
		assert.Equal(t, *first.OpcWorkRequestId, *again.OpcWorkRequestId, "it has been done")

		_, err = put(t, s, "chat", token, 2)
		assertRefused(t, err, http.StatusConflict, "InvalidatedRetryToken")
		m := s.Modes()
		m.TokenConflict = false
		s.SetModes(m)
		again, err = put(t, s, "chat", token, 2)
		require.NoError(t, err)
		assert.Equal(t, *first.OpcWorkRequestId, *again.OpcWorkRequestId)

		other, err := put(t, s, "chat", nil, 3)
		require.NoError(t, err)
		await(t, s, other.OpcWorkRequestId)
		_, err = put(t, s, "chat", token, 1)
		assertRefused(t, err, http.StatusConflict, "InvalidatedRetryToken")
		time.Sleep(25 * time.Hour)
		again, err = put(t, s, "chat", token, 1)
		require.NoError(t, err)
		assert.NotEqual(t, *first.OpcWorkRequestId, *again.OpcWorkRequestId, "the token is forgotten")
	})
}

func TestRetryTokenOrEtagFirst(t *testing.T) {
	t.Parallel()
	for first, name := range map[bool]string{true: "token", false: "etag"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startWithSets(t, func(m *ocilb.Modes) { m.TokenFirst = first })
				etag := getSet(t, s, "chat").ETag
				retried := func(r *loadbalancer.UpdateBackendSetRequest) {
					r.IfMatch, r.OpcRetryToken = etag, common.String("token")
				}
				_, err := put(t, s, "chat", retried, 1)
				require.NoError(t, err)
				_, err = put(t, s, "chat", retried, 1)
				if first {
					require.NoError(t, err)
					return
				}
				assertRefused(t, err, http.StatusPreconditionFailed, "NoEtagMatch")
			})
		})
	}
}

func TestReadsAreStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, func(m *ocilb.Modes) { m.Stale = ocilb.Duration(5 * time.Second) })
		time.Sleep(time.Minute)
		before := getSet(t, s, "chat")
		changed, err := put(t, s, "chat", nil, 1)
		require.NoError(t, err)
		await(t, s, changed.OpcWorkRequestId)
		seen := getSet(t, s, "chat")
		assert.Empty(t, seen.Backends)
		assert.Equal(t, *before.ETag, *seen.ETag)
		_, err = put(t, s, "chat", func(r *loadbalancer.UpdateBackendSetRequest) { r.IfMatch = seen.ETag }, 2)
		assertRefused(t, err, http.StatusPreconditionFailed, "NoEtagMatch")
		time.Sleep(5 * time.Second)
		assert.Len(t, getSet(t, s, "chat").Backends, 1)
	})
}

func TestRefusalsAtOnceOrByTheWorkRequest(t *testing.T) {
	t.Parallel()
	for late, name := range map[bool]string{true: "late", false: "at once"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startWithSets(t, func(m *ocilb.Modes) { m.RefuseLate = late })
				deleted, err := s.Client.DeleteBackend(t.Context(), loadbalancer.DeleteBackendRequest{
					LoadBalancerId: common.String(id), BackendSetName: common.String("chat"), BackendName: common.String("10.0.0.9:1"),
				})
				if !late {
					assertRefused(t, err, http.StatusNotFound, "NotAuthorizedOrNotFound")
					return
				}
				require.NoError(t, err)
				work := await(t, s, deleted.OpcWorkRequestId)
				assert.Equal(t, loadbalancer.WorkRequestLifecycleStateFailed, work.LifecycleState)
				require.Len(t, work.ErrorDetails, 1)
				assert.Equal(t, loadbalancer.WorkRequestErrorErrorCodeBadInput, work.ErrorDetails[0].ErrorCode)
			})
		})
	}
}

func TestWorkRequestsFail(t *testing.T) {
	t.Parallel()
	for partial, name := range map[bool]string{true: "with effect", false: "without effect"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startWithSets(t, func(m *ocilb.Modes) { m.FailEvery, m.Partial = 1, partial })
				changed, err := put(t, s, "chat", nil, 1)
				require.NoError(t, err)
				work := await(t, s, changed.OpcWorkRequestId)
				assert.Equal(t, loadbalancer.WorkRequestErrorErrorCodeInternalError, work.ErrorDetails[0].ErrorCode)
				assert.Equal(t, partial, len(getSet(t, s, "chat").Backends) > 0)
			})
		})
	}
}

func TestListsOfWorkRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, func(m *ocilb.Modes) { m.NewestFirst = false })
		var want []string
		for port := range 5 {
			changed, err := put(t, s, "chat", nil, port+1)
			require.NoError(t, err)
			want = append(want, *changed.OpcWorkRequestId)
		}
		list := func() (ids []string) {
			r := loadbalancer.ListWorkRequestsRequest{LoadBalancerId: common.String(id), Limit: common.Int64(2)}
			for {
				got, err := s.Client.ListWorkRequests(t.Context(), r)
				require.NoError(t, err)
				for _, w := range got.Items {
					ids = append(ids, *w.Id)
				}
				if got.OpcNextPage == nil {
					return ids
				}
				r.Page = got.OpcNextPage
			}
		}
		assert.Equal(t, want, list())
		m := s.Modes()
		m.NewestFirst = true
		s.SetModes(m)
		assert.Equal(t, want[4], list()[0])
	})
}
