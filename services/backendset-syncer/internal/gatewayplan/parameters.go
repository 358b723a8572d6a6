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

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Parameters are the parameters of a Gateway. Zero values are not set.
type Parameters struct {
	LoadBalancerID string
	IdleTimeout    int // in seconds
	Health         lblayout.Health
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
		Health: lblayout.Health{
			Protocol: p.popText(keyHealthProtocol), Path: p.popText(keyHealthPath), Port: p.popNumber(keyHealthPort, 0, maxPort),
			ReturnCode: p.popNumber(keyHealthCode, minStatus, maxStatus),
			Retries:    p.popNumber(keyHealthRetries, 1, maxRetries), TimeoutMillis: 1000 * p.popNumber(keyHealthTimeout, 1, maxTimeout),
			IntervalMillis: 1000 * p.popNumber(keyHealthInterval, 1, maxInterval),
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
	case !slices.Contains([]string{"", healthTCP, healthHTTP}, h.Protocol):
		p.addProblem("%s: %.20q is neither TCP nor HTTP", keyHealthProtocol, h.Protocol)
	case h.Protocol != healthHTTP && (h.Path != "" || h.ReturnCode != 0):
		p.addProblem("%s and %s have an effect only with %s HTTP", keyHealthPath, keyHealthCode, keyHealthProtocol)
	case h.Path != "" && !strings.HasPrefix(h.Path, "/") || len(h.Path) > maxHealthPath:
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
	if p.Health == (lblayout.Health{}) {
		p.Health = class.Health
	}
	p.DrainMinimum, p.DrainMaximum = cmp.Or(p.DrainMinimum, class.DrainMinimum), cmp.Or(p.DrainMaximum, class.DrainMaximum)
	return p
}

// defaultDrain is the default of BackendSetBindings: longer than any stream that a gateway permits.
const defaultDrain = time.Hour

// drainTimes returns the drain times.
func (p *Parameters) drainTimes() plan.Drain {
	d := plan.Drain{Maximum: defaultDrain}
	if p.DrainMaximum != nil {
		d.Maximum = *p.DrainMaximum
	}
	if p.DrainMinimum != nil {
		d.Minimum = *p.DrainMinimum
	}
	return d
}

// Defaults of health checks: those of the service.
const (
	healthRetries  = 3
	healthTimeout  = 3000
	healthInterval = 10_000
	healthCode     = 200
)

// Protocols of health checks.
const (
	healthTCP  = "TCP"
	healthHTTP = "HTTP"
)

// healthChecker returns the health checker of new backend sets.
func (p *Parameters) healthChecker() lblayout.Health {
	h := p.Health
	h.Protocol, h.Retries = cmp.Or(h.Protocol, healthTCP), cmp.Or(h.Retries, healthRetries)
	h.TimeoutMillis, h.IntervalMillis = cmp.Or(h.TimeoutMillis, healthTimeout), cmp.Or(h.IntervalMillis, healthInterval)
	h.ReturnCode = cmp.Or(h.ReturnCode, healthCode)
	if h.Protocol == healthHTTP {
		h.Path = cmp.Or(h.Path, "/")
	}
	return h
}
