package metrics

import "github.com/prometheus/client_golang/prometheus"

// States of the objects that have rules.
const (
	stateRead      = "read"
	stateMalformed = "malformed"
)

// EndpointsFile shows whether the endpoints file could be read when it changed last.
type EndpointsFile struct{ successful prometheus.Gauge }

// NewEndpointsFile returns the gauge, registered. It is for pickers that have such a file: for others it would be an
// alarm.
func NewEndpointsFile(r prometheus.Registerer) *EndpointsFile {
	f := &EndpointsFile{successful: gauge("endpoints_file_last_reload_successful",
		"1 if the last change of the endpoints file was valid, 0 if older endpoints stay.")}
	r.MustRegister(f.successful)
	return f
}

// ObserveEndpointsFile takes the outcome of reading the file.
func (f *EndpointsFile) ObserveEndpointsFile(err error) {
	if err != nil {
		f.successful.Set(0)
		return
	}
	f.successful.Set(1)
}

// Rules shows how many objects say what holds for requests.
type Rules struct{ objects *prometheus.GaugeVec }

// NewRules returns the gauges, registered. They are for pickers that read such objects.
func NewRules(r prometheus.Registerer) *Rules {
	v := &Rules{objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "rule_objects", Help: "InferenceObjectives and InferenceModelRewrites of the pool, by whether they are readable.",
	}, []string{"resource", "state"})}
	r.MustRegister(v.objects)
	return v
}

// ObserveRules takes the figures of one kind.
func (v *Rules) ObserveRules(resource string, read, malformed int) {
	v.objects.WithLabelValues(resource, stateRead).Set(float64(read))
	v.objects.WithLabelValues(resource, stateMalformed).Set(float64(malformed))
}
