package pluginconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/pool"
)

func TestWaiting(t *testing.T) {
	t.Parallel()
	const unlimited = "flowControl.defaultRequestTTL: requests do not wait without a limit: they wait 55s for an endpoint; " +
		"give another time in flowControl.noEndpointRequestTTL"
	usual := pool.QueueLimits{TTL: 55 * time.Second, Requests: 5000, Bytes: 256 << 20}
	tests := []struct {
		name, give string
		want       pool.QueueLimits
		warning    string
	}{
		{name: "default", give: "{}", want: usual},
		{name: "all", give: "{noEndpointRequestTTL: 2m, maxRequests: 1k, maxBytes: 1Gi}", want: pool.QueueLimits{TTL: 2 * time.Minute, Requests: 1000, Bytes: 1 << 30}},
		{name: "numbers", give: "{maxRequests: 7, maxBytes: 4096}", want: pool.QueueLimits{TTL: 55 * time.Second, Requests: 7, Bytes: 4096}},
		{name: "refuse at once", give: "{noEndpointRequestTTL: 0s}", want: pool.QueueLimits{Requests: 5000, Bytes: 256 << 20}},
		{name: "as the time of all requests", give: "{defaultRequestTTL: 30s}", want: pool.QueueLimits{TTL: 30 * time.Second, Requests: 5000, Bytes: 256 << 20}},
		{name: "not as the time of all requests", give: "{defaultRequestTTL: 30s, noEndpointRequestTTL: 0s}", want: pool.QueueLimits{Requests: 5000, Bytes: 256 << 20}},
		{name: "without a limit", give: "{defaultRequestTTL: 0s}", want: usual, warning: unlimited},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Load([]byte("apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins: [{type: queue-scorer}]\nflowControl: "+tt.give), Options{StaleAfter: time.Minute})
			require.NoError(t, err)
			assert.Equal(t, tt.want, c.Waiting)
			if tt.warning == "" {
				assert.Empty(t, c.Warnings)
				return
			}
			require.Len(t, c.Warnings, 1)
			assert.Contains(t, c.Warnings[0].String(), tt.warning)
		})
	}
}
