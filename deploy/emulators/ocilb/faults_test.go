package ocilb_test

import (
	"errors"
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

func TestFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind   string
		effect bool // whether the request has its effect
		slow   bool // whether the client must give up
	}{
		{kind: ocilb.FaultStatus},
		{kind: ocilb.FaultReset},
		{kind: ocilb.FaultHang, slow: true},
		{kind: ocilb.FaultLost, effect: true},
		{kind: ocilb.FaultLostHang, effect: true, slow: true},
		{kind: ocilb.FaultMalformed, effect: true},
	}
	for _, tt := range tests {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := startWithSets(t, nil)
				s.SetFaults(ocilb.Fault{Operations: []string{"UpdateBackendSet"}, Kind: tt.kind, Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable", Count: 1})
				begun := time.Now()
				_, err := put(t, s, "chat", nil, 1)
				if tt.kind == ocilb.FaultStatus {
					assertRefused(t, err, http.StatusServiceUnavailable, "ServiceUnavailable")
				} else if tt.kind != ocilb.FaultMalformed { // the SDK does not read the body of an update
					require.Error(t, err)
				}
				assert.Equal(t, tt.slow, time.Since(begun) >= time.Minute, "time-out of the SDK")
				time.Sleep(2 * time.Second)
				assert.Equal(t, tt.effect, len(getSet(t, s, "chat").Backends) == 1)
				calls := s.Calls("UpdateBackendSet")
				require.Len(t, calls, 1)
				assert.Equal(t, tt.kind, calls[0].Fault)

				_, err = put(t, s, "chat", nil, 2)
				require.NoError(t, err, "the fault has ended")
			})
		})
	}
}

func TestDelayAndMalformedReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		s.SetFaults(ocilb.Fault{Kind: ocilb.FaultDelay, Delay: ocilb.Duration(5 * time.Second), Count: 1}, ocilb.Fault{Kind: ocilb.FaultMalformed, Count: 1})
		begun := time.Now()
		getSet(t, s, "chat")
		assert.Equal(t, 5*time.Second, time.Since(begun))
		_, err := s.Client.GetBackendSet(t.Context(), loadbalancer.GetBackendSetRequest{LoadBalancerId: common.String(id), BackendSetName: common.String("chat")})
		require.Error(t, err)
	})
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		s.SetThrottle(ocilb.Throttle{PerSecond: 1, Burst: 2, RetryAfter: "7"})
		getSet(t, s, "chat")
		getSet(t, s, "chat")
		got, err := s.Client.GetBackendSet(t.Context(), loadbalancer.GetBackendSetRequest{LoadBalancerId: common.String(id), BackendSetName: common.String("chat")})
		assertRefused(t, err, http.StatusTooManyRequests, "TooManyRequests")
		assert.Equal(t, "7", got.RawResponse.Header.Get("Retry-After"))
		time.Sleep(time.Second)
		getSet(t, s, "chat")
	})
}

func TestSignatures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := startWithSets(t, nil)
		stranger := s.NewClient(t)
		stranger.Interceptor = func(r *http.Request) error {
			if r.Method == http.MethodGet {
				return nil
			}
			return errors.New("unused")
		}
		stranger.Signer = signer(func(r *http.Request) error {
			if err := common.DefaultRequestSigner(ocilbtest.Provider()).Sign(r); err != nil {
				return err
			}
			r.Header.Set("Date", time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat))
			return nil
		})
		_, err := stranger.GetLoadBalancer(t.Context(), loadbalancer.GetLoadBalancerRequest{LoadBalancerId: common.String(id)})
		assertRefused(t, err, http.StatusUnauthorized, "NotAuthenticated")

		time.Sleep(time.Hour) // the clock of the bubble is that of both
		_, err = s.Client.GetLoadBalancer(t.Context(), loadbalancer.GetLoadBalancerRequest{LoadBalancerId: common.String(id)})
		require.NoError(t, err)
	})
}

// signer signs a request.
type signer func(r *http.Request) error

func (s signer) Sign(r *http.Request) error { return s(r) }
