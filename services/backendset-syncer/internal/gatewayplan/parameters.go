package gatewayplan

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Parameters are the parameters of a Gateway. Zero values are not set.
type Parameters struct {
	LoadBalancerID string
	IdleTimeout    int // in seconds
	Health         plan.HealthChecker
	DrainMinimum   *time.Duration
	DrainMaximum   *time.Duration
}

// Keys of ConfigMaps of parameters.
const (
	keyLoadBalancer   = "loadBalancerId"
	keyIdleTimeout    = "idleTimeoutSeconds"
	keyHealthProtocol = "healthCheckProtocol"
	keyHealthPath     = "healthCheckPath"
	keyHealthPort     = "healthCheckPort"
	keyHealthCode     = "healthCheckReturnCode"
	keyHealthRetries  = "healthCheckRetries"
	keyHealthTimeout  = "healthCheckTimeoutSeconds"
	keyHealthInterval = "healthCheckIntervalSeconds"
	keyDrainMinimum   = "drainMinimumSeconds"
	keyDrainMaximum   = "drainMaximumSeconds"
)

// Ranges of values, as the service documents them. Drain times are those of BackendSetBindings.
const (
	maxIdleTimeout = 7200
	maxPort        = 65535
	minStatus      = 100
	maxStatus      = 599
	maxRetries     = 10
	maxTimeout     = 60
	maxInterval    = 1800
	maxDrain       = 24 * 3600
)

// parseParameters reads the data of a ConfigMap. It refuses keys that it does not know: nothing may be ignored in silence.
func parseParameters(data map[string]string) (Parameters, error) {
	p := parser{data: maps.Clone(data)}
	parameters := Parameters{
		LoadBalancerID: p.popText(keyLoadBalancer), IdleTimeout: p.popNumber(keyIdleTimeout, 1, maxIdleTimeout),
		Health: plan.HealthChecker{
			Protocol: p.popText(keyHealthProtocol), URLPath: p.popText(keyHealthPath), Port: p.popNumber(keyHealthPort, 0, maxPort),
			ReturnCode: p.popNumber(keyHealthCode, minStatus, maxStatus), Retries: p.popNumber(keyHealthRetries, 1, maxRetries),
			Timeout:  time.Duration(p.popNumber(keyHealthTimeout, 1, maxTimeout)) * time.Second,
			Interval: time.Duration(p.popNumber(keyHealthInterval, 1, maxInterval)) * time.Second,
		},
		DrainMinimum: p.popSeconds(keyDrainMinimum), DrainMaximum: p.popSeconds(keyDrainMaximum),
	}
	for _, key := range slices.Sorted(maps.Keys(p.data)) {
		p.addProblem("%.60s: unknown key: %s", key, strictyaml.Hint(key, p.known))
	}
	p.checkValues(&parameters)
	return parameters, errors.Join(p.problems...)
}

// checkValues checks values against each other.
func (p *parser) checkValues(parameters *Parameters) {
	h := &parameters.Health
	switch {
	case parameters.LoadBalancerID != "" && !strings.HasPrefix(parameters.LoadBalancerID, "ocid1.loadbalancer."):
		p.addProblem("%s: %.120q is not the OCID of a load balancer, which begins with ocid1.loadbalancer", keyLoadBalancer,
			parameters.LoadBalancerID)
	case !slices.Contains([]string{"", plan.HealthTCP, plan.HealthHTTP}, h.Protocol):
		p.addProblem("%s: %.20q is neither TCP nor HTTP", keyHealthProtocol, h.Protocol)
	case h.Protocol != plan.HealthHTTP && (h.URLPath != "" || h.ReturnCode != 0):
		p.addProblem("%s and %s have an effect only with %s HTTP", keyHealthPath, keyHealthCode, keyHealthProtocol)
	case h.URLPath != "" && !strings.HasPrefix(h.URLPath, "/") || len(h.URLPath) > maxHealthPath:
		p.addProblem("%s: must begin with / and have at most %d characters", keyHealthPath, maxHealthPath)
	case parameters.DrainMinimum != nil && *parameters.DrainMinimum > parameters.drainTimes().Maximum:
		p.addProblem("%s exceeds %s", keyDrainMinimum, keyDrainMaximum)
	}
}

const maxHealthPath = 1024

type parser struct {
	data     map[string]string // not read yet
	known    []string          // the keys that were asked for
	problems []error
}

func (p *parser) addProblem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf(format, args...))
}

func (p *parser) popText(key string) string {
	value := strings.TrimSpace(p.data[key])
	delete(p.data, key)
	p.known = append(p.known, key)
	return value
}

func (p *parser) popNumber(key string, least, most int) int {
	text := p.popText(key)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		p.addProblem("%s: %.20q is not a number from %d to %d", key, text, least, most)
		return 0
	}
	return n
}

func (p *parser) popSeconds(key string) *time.Duration {
	set := strings.TrimSpace(p.data[key]) != ""
	d := time.Duration(p.popNumber(key, 0, maxDrain)) * time.Second
	if !set {
		return nil
	}
	return &d
}

// withDefaults returns the parameters of a Gateway with those of its class where it has none.
func (p Parameters) withDefaults(class Parameters) Parameters {
	p.LoadBalancerID, p.IdleTimeout = cmp.Or(p.LoadBalancerID, class.LoadBalancerID), cmp.Or(p.IdleTimeout, class.IdleTimeout)
	if p.Health == (plan.HealthChecker{}) {
		p.Health = class.Health
	}
	p.DrainMinimum, p.DrainMaximum = cmp.Or(p.DrainMinimum, class.DrainMinimum), cmp.Or(p.DrainMaximum, class.DrainMaximum)
	return p
}

// drainTimes returns the drain times.
func (p *Parameters) drainTimes() plan.Drain {
	return plan.Drain{Minimum: ptr.Deref(p.DrainMinimum, 0), Maximum: ptr.Deref(p.DrainMaximum, plan.DefaultDrain)}
}

// Defaults of health checks: those of the service.
const (
	healthRetries  = 3
	healthTimeout  = 3 * time.Second
	healthInterval = 10 * time.Second
	healthCode     = 200
)

// healthChecker returns the health checker of new backend sets.
func (p *Parameters) healthChecker() plan.HealthChecker {
	h := p.Health
	h.Protocol, h.Retries = cmp.Or(h.Protocol, plan.HealthTCP), cmp.Or(h.Retries, healthRetries)
	h.Timeout, h.Interval = cmp.Or(h.Timeout, healthTimeout), cmp.Or(h.Interval, healthInterval)
	h.ReturnCode = cmp.Or(h.ReturnCode, healthCode)
	if h.Protocol == plan.HealthHTTP {
		h.URLPath = cmp.Or(h.URLPath, "/")
	}
	return h
}
