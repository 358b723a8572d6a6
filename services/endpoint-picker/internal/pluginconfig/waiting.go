package pluginconfig

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.dev/services/endpoint-picker/internal/pool"
)

// The default limits of requests that wait for an endpoint.
const (
	// defaultTTL is less than the 60 s after which most load balancers cut a connection without traffic.
	defaultTTL = 55 * time.Second
	// defaultRequests is the llm-d router's default for a band of priority.
	defaultRequests = 5000
	// defaultBytes holds 5000 prompts of 13 000 tokens each.
	defaultBytes = 256 << 20
)

// quantity is a number in the format of Kubernetes: 100, 1k, 256Mi.
type quantity int64

// UnmarshalText reads a positive quantity.
func (q *quantity) UnmarshalText(text []byte) error {
	parsed, err := resource.ParseQuantity(string(text))
	if err != nil || parsed.Value() <= 0 {
		return fmt.Errorf("%.100q is not a positive quantity: give one such as 5000, 1k or 256Mi", text)
	}
	*q = quantity(parsed.Value())
	return nil
}

const (
	pathTTL        = "flowControl.noEndpointRequestTTL"
	pathDefaultTTL = "flowControl.defaultRequestTTL"
)

// compileWaiting compiles the limits of requests that wait for an endpoint. As upstream, their time follows defaultRequestTTL.
func (c *compiler) compileWaiting() {
	limits := pool.QueueLimits{TTL: defaultTTL, Requests: defaultRequests, Bytes: defaultBytes}
	if flow := c.document.FlowControl; flow != nil {
		if flow.MaxRequests > 0 {
			limits.Requests = int(flow.MaxRequests)
		}
		if flow.MaxBytes > 0 {
			limits.Bytes = int64(flow.MaxBytes)
		}
		path, given := pathTTL, flow.NoEndpointRequestTTL
		if !c.HasField(pathTTL) {
			path, given = pathDefaultTTL, flow.DefaultRequestTTL
		}
		switch {
		case given < 0:
			c.Errorf(path, "it is negative: give a duration such as 55s; 0s refuses requests at once while there is no endpoint")
		case path == pathDefaultTTL && given == 0 && c.HasField(path):
			c.Warnf(path, "requests do not wait without a limit: they wait %v for an endpoint; give another time in %s", defaultTTL,
				pathTTL)
		case c.HasField(path):
			limits.TTL = given
		}
	}
	c.config.Waiting = limits
}
