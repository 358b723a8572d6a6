package plan

import "time"

// HealthChecker is the health checker of a backend set, without the fields that no binding and no Gateway has.
type HealthChecker struct {
	Protocol, URLPath         string
	Port, ReturnCode, Retries int
	Timeout, Interval         time.Duration
}

// Protocols of health checkers.
const (
	HealthTCP  = "TCP"
	HealthHTTP = "HTTP"
)

// IsEqual compares health checkers. The path and the status code have no effect on TCP.
func (h HealthChecker) IsEqual(other HealthChecker) bool {
	if h.Protocol == other.Protocol && h.Protocol != HealthHTTP {
		other.URLPath, other.ReturnCode = h.URLPath, h.ReturnCode
	}
	return h == other
}
