// Package lbapi defines the objects of OCI's Load Balancer API, version 20170115, as they are in requests and responses, with
// the defaults and the validation of the service.
//
// Types named Details are bodies of requests: an optional field that is missing takes the default, also in an update, which
// replaces the whole object. The texts of errors are those of the service where they are known.
package lbapi

// LoadBalancer is a load balancer with everything in it. A stored LoadBalancer is immutable: Clone returns a copy whose maps
// may be changed, and whose objects may be replaced.
type LoadBalancer struct {
	ID                      string                    `json:"id"`
	CompartmentID           string                    `json:"compartmentId"`
	DisplayName             string                    `json:"displayName"`
	LifecycleState          string                    `json:"lifecycleState"`
	TimeCreated             string                    `json:"timeCreated"`
	IPAddresses             []IPAddress               `json:"ipAddresses"`
	ShapeName               string                    `json:"shapeName"`
	ShapeDetails            *ShapeDetails             `json:"shapeDetails,omitempty"`
	IsPrivate               bool                      `json:"isPrivate"`
	SubnetIDs               []string                  `json:"subnetIds"`
	NetworkSecurityGroupIDs []string                  `json:"networkSecurityGroupIds"`
	Listeners               map[string]*Listener      `json:"listeners"`
	Hostnames               map[string]*Hostname      `json:"hostnames"`
	Certificates            map[string]*Certificate   `json:"certificates"`
	BackendSets             map[string]*BackendSet    `json:"backendSets"`
	PathRouteSets           map[string]any            `json:"pathRouteSets"`
	RuleSets                map[string]any            `json:"ruleSets"`
	RoutingPolicies         map[string]*RoutingPolicy `json:"routingPolicies"`
	SSLCipherSuites         map[string]any            `json:"sslCipherSuites"`
	FreeformTags            map[string]string         `json:"freeformTags"`
	DefinedTags             map[string]any            `json:"definedTags"`
}

// IPAddress is an address of a load balancer.
type IPAddress struct {
	IPAddress string `json:"ipAddress"`
	IsPublic  bool   `json:"isPublic"`
}

// ShapeDetails are the bandwidths of a flexible load balancer.
type ShapeDetails struct {
	MinimumBandwidthInMbps int `json:"minimumBandwidthInMbps"`
	MaximumBandwidthInMbps int `json:"maximumBandwidthInMbps"`
}

// States of a load balancer.
const (
	Active   = "ACTIVE"
	Updating = "UPDATING" // only with the concurrency mode of network load balancers
	Deleted  = "DELETED"
	Failed   = "FAILED"
)

// Backend is a backend.
type Backend struct {
	Name           string `json:"name"`
	IPAddress      string `json:"ipAddress"`
	Port           int    `json:"port"`
	Weight         int    `json:"weight"`
	MaxConnections *int   `json:"maxConnections,omitempty"`
	Drain          bool   `json:"drain"`
	Backup         bool   `json:"backup"`
	Offline        bool   `json:"offline"`
}

// BackendDetails are a backend in a request.
type BackendDetails struct {
	IPAddress      string `json:"ipAddress"`
	Port           *int   `json:"port"`
	Weight         *int   `json:"weight"`
	MaxConnections *int   `json:"maxConnections"`
	Drain          bool   `json:"drain"`
	Backup         bool   `json:"backup"`
	Offline        bool   `json:"offline"`
}

// UpdateBackendDetails replace the changeable fields of a backend. All but one are mandatory.
type UpdateBackendDetails struct {
	Weight         *int  `json:"weight"`
	MaxConnections *int  `json:"maxConnections"`
	Drain          *bool `json:"drain"`
	Backup         *bool `json:"backup"`
	Offline        *bool `json:"offline"`
}

// BackendSet is a backend set.
type BackendSet struct {
	Name                                    string                                   `json:"name"`
	Policy                                  string                                   `json:"policy"`
	Backends                                []Backend                                `json:"backends"`
	BackendMaxConnections                   *int                                     `json:"backendMaxConnections,omitempty"`
	HealthChecker                           HealthChecker                            `json:"healthChecker"`
	SSLConfiguration                        *SSLConfiguration                        `json:"sslConfiguration,omitempty"`
	SessionPersistenceConfiguration         *SessionPersistenceConfiguration         `json:"sessionPersistenceConfiguration,omitempty"`
	LBCookieSessionPersistenceConfiguration *LBCookieSessionPersistenceConfiguration `json:"lbCookieSessionPersistenceConfiguration,omitempty"`
}

// BackendSetDetails are a backend set in a request. Name is only in requests that create it.
type BackendSetDetails struct {
	Name                                    string                                   `json:"name"`
	Policy                                  string                                   `json:"policy"`
	Backends                                []BackendDetails                         `json:"backends"`
	BackendMaxConnections                   *int                                     `json:"backendMaxConnections"`
	HealthChecker                           *HealthCheckerDetails                    `json:"healthChecker"`
	SSLConfiguration                        *SSLConfiguration                        `json:"sslConfiguration"`
	SessionPersistenceConfiguration         *SessionPersistenceConfiguration         `json:"sessionPersistenceConfiguration"`
	LBCookieSessionPersistenceConfiguration *LBCookieSessionPersistenceConfiguration `json:"lbCookieSessionPersistenceConfiguration"`
}

// HealthChecker is the health check of a backend set. Port 0 is the port of each backend.
type HealthChecker struct {
	Protocol          string `json:"protocol"`
	URLPath           string `json:"urlPath,omitempty"`
	Port              int    `json:"port"`
	ReturnCode        int    `json:"returnCode"`
	Retries           int    `json:"retries"`
	TimeoutInMillis   int    `json:"timeoutInMillis"`
	IntervalInMillis  int    `json:"intervalInMillis"`
	ResponseBodyRegex string `json:"responseBodyRegex"`
	IsForcePlainText  bool   `json:"isForcePlainText"`
}

// HealthCheckerDetails are a health check in a request.
type HealthCheckerDetails struct {
	Protocol          string  `json:"protocol"`
	URLPath           string  `json:"urlPath"`
	Port              int     `json:"port"`
	ReturnCode        *int    `json:"returnCode"`
	Retries           *int    `json:"retries"`
	TimeoutInMillis   *int    `json:"timeoutInMillis"`
	IntervalInMillis  *int    `json:"intervalInMillis"`
	ResponseBodyRegex *string `json:"responseBodyRegex"`
	IsForcePlainText  bool    `json:"isForcePlainText"`
}

// SSLConfiguration is how a backend set or a listener uses TLS.
type SSLConfiguration struct {
	VerifyDepth                    *int     `json:"verifyDepth,omitempty"`
	VerifyPeerCertificate          *bool    `json:"verifyPeerCertificate,omitempty"`
	HasSessionResumption           *bool    `json:"hasSessionResumption,omitempty"`
	TrustedCertificateAuthorityIDs []string `json:"trustedCertificateAuthorityIds,omitempty"`
	CertificateIDs                 []string `json:"certificateIds,omitempty"`
	CertificateName                *string  `json:"certificateName,omitempty"`
	ServerOrderPreference          string   `json:"serverOrderPreference,omitempty"`
	CipherSuiteName                *string  `json:"cipherSuiteName,omitempty"`
	Protocols                      []string `json:"protocols,omitempty"`
}

// SessionPersistenceConfiguration binds clients to backends by a cookie of the application.
type SessionPersistenceConfiguration struct {
	CookieName      string `json:"cookieName"`
	DisableFallback *bool  `json:"disableFallback,omitempty"`
}

// LBCookieSessionPersistenceConfiguration binds clients to backends by a cookie of the load balancer.
type LBCookieSessionPersistenceConfiguration struct {
	CookieName      *string `json:"cookieName,omitempty"`
	DisableFallback *bool   `json:"disableFallback,omitempty"`
	Domain          *string `json:"domain,omitempty"`
	Path            *string `json:"path,omitempty"`
	MaxAgeInSeconds *int    `json:"maxAgeInSeconds,omitempty"`
	IsSecure        *bool   `json:"isSecure,omitempty"`
	IsHTTPOnly      *bool   `json:"isHttpOnly,omitempty"`
}

// Listener is a listener. Its request form has the same fields; Name is only in requests that create it.
type Listener struct {
	Name                    string                   `json:"name"`
	DefaultBackendSetName   string                   `json:"defaultBackendSetName"`
	Port                    int                      `json:"port"`
	Protocol                string                   `json:"protocol"`
	HostnameNames           []string                 `json:"hostnameNames,omitempty"`
	PathRouteSetName        *string                  `json:"pathRouteSetName,omitempty"`
	SSLConfiguration        *SSLConfiguration        `json:"sslConfiguration,omitempty"`
	ConnectionConfiguration *ConnectionConfiguration `json:"connectionConfiguration,omitempty"`
	RuleSetNames            []string                 `json:"ruleSetNames,omitempty"`
	RoutingPolicyName       *string                  `json:"routingPolicyName,omitempty"`
}

// ConnectionConfiguration is the connection configuration of a listener. The idle timeout is in seconds.
type ConnectionConfiguration struct {
	IdleTimeout                    int64    `json:"idleTimeout"`
	BackendTCPProxyProtocolVersion *int     `json:"backendTcpProxyProtocolVersion,omitempty"`
	BackendTCPProxyProtocolOptions []string `json:"backendTcpProxyProtocolOptions,omitempty"`
}

// RoutingPolicy is a routing policy. Its request form has the same fields; Name is only in requests that create it.
type RoutingPolicy struct {
	Name                     string        `json:"name"`
	ConditionLanguageVersion string        `json:"conditionLanguageVersion"`
	Rules                    []RoutingRule `json:"rules"`
}

// RoutingRule is a rule of a routing policy.
type RoutingRule struct {
	Name      string   `json:"name"`
	Condition string   `json:"condition"`
	Actions   []Action `json:"actions"`
}

// Action is what a rule does.
type Action struct {
	Name           string `json:"name"`
	BackendSetName string `json:"backendSetName"`
}

// ForwardToBackendSet is the name of the only action.
const ForwardToBackendSet = "FORWARD_TO_BACKENDSET"

// Hostname is a name that listeners can have.
type Hostname struct {
	Name     string `json:"name"`
	Hostname string `json:"hostname"`
}

// Certificate is a certificate that listeners and backend sets refer to by name.
type Certificate struct {
	CertificateName   string `json:"certificateName"`
	PublicCertificate string `json:"publicCertificate,omitempty"`
	CACertificate     string `json:"caCertificate,omitempty"`
}

// WorkRequest is a mutation that was accepted.
type WorkRequest struct {
	ID             string             `json:"id"`
	LoadBalancerID string             `json:"loadBalancerId"`
	CompartmentID  string             `json:"compartmentId"`
	Type           string             `json:"type"`
	LifecycleState string             `json:"lifecycleState"`
	Message        string             `json:"message"`
	TimeAccepted   string             `json:"timeAccepted"`
	TimeFinished   string             `json:"timeFinished,omitempty"`
	ErrorDetails   []WorkRequestError `json:"errorDetails"`
}

// States of a work request.
const (
	Accepted   = "ACCEPTED"
	InProgress = "IN_PROGRESS"
	Succeeded  = "SUCCEEDED"
	// Failed is the state of a failed work request, too.
)

// WorkRequestError is why a work request failed.
type WorkRequestError struct {
	ErrorCode string `json:"errorCode"` // BAD_INPUT or INTERNAL_ERROR
	Message   string `json:"message"`
}

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
