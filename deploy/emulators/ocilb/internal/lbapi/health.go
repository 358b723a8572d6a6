package lbapi

// BackendHealth is the health of a backend.
type BackendHealth struct {
	Status             string              `json:"status"`
	HealthCheckResults []HealthCheckResult `json:"healthCheckResults"`
}

// HealthCheckResult is the last result of a node of the load balancer.
type HealthCheckResult struct {
	SubnetID          string `json:"subnetId"`
	SourceIPAddress   string `json:"sourceIpAddress"`
	Timestamp         string `json:"timestamp"`
	HealthCheckStatus string `json:"healthCheckStatus"`
}

// BackendSetHealth is the health of a backend set. Backends in none of its lists are healthy.
type BackendSetHealth struct {
	Status                    string   `json:"status"`
	WarningStateBackendNames  []string `json:"warningStateBackendNames"`
	CriticalStateBackendNames []string `json:"criticalStateBackendNames"`
	UnknownStateBackendNames  []string `json:"unknownStateBackendNames"`
	TotalBackendCount         int      `json:"totalBackendCount"`
}

// LoadBalancerHealth is the health of a load balancer.
type LoadBalancerHealth struct {
	Status                       string   `json:"status"`
	WarningStateBackendSetNames  []string `json:"warningStateBackendSetNames"`
	CriticalStateBackendSetNames []string `json:"criticalStateBackendSetNames"`
	UnknownStateBackendSetNames  []string `json:"unknownStateBackendSetNames"`
	TotalBackendSetCount         int      `json:"totalBackendSetCount"`
}

// LoadBalancerHealthSummary is the health of a load balancer in a list.
type LoadBalancerHealthSummary struct {
	LoadBalancerID string `json:"loadBalancerId"`
	Status         string `json:"status"`
}
