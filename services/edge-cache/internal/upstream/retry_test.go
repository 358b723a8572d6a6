package upstream

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDelaysFollowWhatHappened(t *testing.T) {
	t.Parallel()
	unauthorized := &StatusError{Status: metav1.Status{Code: http.StatusUnauthorized}}
	gone := &StatusError{Status: metav1.Status{Code: http.StatusGone}}
	tests := []struct {
		name string
		last time.Duration
		give attempt
		want time.Duration
	}{
		{name: "first attempt", want: firstRetry},
		{name: "nothing was watched", last: firstRetry, want: 2 * firstRetry},
		{name: "longest", last: lastRetry, give: attempt{failing: time.Hour}, want: lastRetry},
		{name: "an outage of 40 s", last: 16 * time.Second, give: attempt{failing: 40 * time.Second}, want: shortRetry},
		{name: "an outage of 160 s", last: 16 * time.Second, give: attempt{failing: 160 * time.Second}, want: 10 * time.Second},
		{name: "lists again and again", last: 16 * time.Second, give: attempt{failing: 40 * time.Second, listed: true}, want: lastRetry},
		{
			name: "watch of less than the last delay", last: 4 * time.Second, give: attempt{watched: 3 * time.Second, failing: time.Hour},
			want: 8 * time.Second,
		},
		{
			name: "watch of more than the last delay", last: 4 * time.Second,
			give: attempt{watched: 5 * time.Second, err: errors.New("cut")}, want: firstRetry,
		},
		{name: "token that ran out", last: 4 * time.Second, give: attempt{err: unauthorized}, want: tokenRetry},
		{name: "history is gone", last: lastRetry, give: attempt{err: gone}, want: firstRetry},
		{name: "history is gone right after a list", last: 4 * time.Second, give: attempt{err: gone, listed: true}, want: 8 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, nextDelay(tt.last, tt.give))
		})
	}
}

// TestRefusals distinguishes a revoked right from a token that ran out while nobody could replace it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	type answer struct {
		code  int32
		after time.Duration
	}
	tests := []struct {
		name string
		give []answer
		want bool
	}{
		{name: "one 403", give: []answer{{code: 403}}},
		{name: "two 403", give: []answer{{code: 403}, {code: 403}}, want: true},
		{name: "many 401 within a minute", give: []answer{{code: 401}, {code: 401}, {code: 401}, {code: 401, after: time.Minute}}},
		{name: "401 for five minutes", give: []answer{{code: 401}, {code: 401, after: unknownAfter}}, want: true},
		{name: "other errors", give: []answer{{code: 500}, {code: 404}, {code: 429, after: time.Hour}}},
		{name: "a 401 between two 403", give: []answer{{code: 403}, {code: 401}, {code: 403}}, want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var r rights
			got := false
			for _, a := range tt.give {
				got = r.countRefusal(a.code, begin.Add(a.after))
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-1": 0, "999999": maxRetryAfter, "99999999999999999999": 0, "Wed, 21 Oct 2026 07:28:00 GMT": 0,
	} {
		recorder := httptest.NewRecorder()
		recorder.Header().Set("Retry-After", text)
		recorder.WriteHeader(http.StatusTooManyRequests)
		response := recorder.Result()
		err := ReadStatus(response)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, want, RetryAfter(err), text)
		assert.EqualError(t, err, "API server: 429 TooManyRequests: ")
	}
}
