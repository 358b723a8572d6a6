package metrics

import "github.com/prometheus/client_golang/prometheus"

// States of objects with rules.
const (
	stateRead      = "read"
	stateMalformed = "malformed"
)

// EndpointsFile exports whether the last change of the endpoints file was valid.
type EndpointsFile struct{ successful prometheus.Gauge }

// NewEndpointsFile creates and registers the gauge. Pickers without such a file must not export it, because its 0 is an
// alarm.
func NewEndpointsFile(r prometheus.Registerer) *EndpointsFile {
	f := &EndpointsFile{successful: gauge("endpoints_file_last_reload_successful",
		"1 if the last change of the endpoints file was valid, 0 if older endpoints stay.")}
	r.MustRegister(f.successful)
	return f
}

// ObserveEndpointsFile records the result of reading the file.
func (f *EndpointsFile) ObserveEndpointsFile(err error) {
	if err != nil {
		f.successful.Set(0)
		return
	}
	f.successful.Set(1)
}

// Rules exports the numbers of objects with rules for requests.
type Rules struct{ objects *prometheus.GaugeVec }

// NewRules creates and registers the gauges, for pickers that read such objects.
func NewRules(r prometheus.Registerer) *Rules {
	v := &Rules{objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "rule_objects", Help: "InferenceObjectives and InferenceModelRewrites of the pool, by whether they are readable.",
	}, []string{"resource", "state"})}
	r.MustRegister(v.objects)
	return v
}

// ObserveRules records the numbers of one kind.
func (v *Rules) ObserveRules(resource string, read, malformed int) {
	v.objects.WithLabelValues(resource, stateRead).Set(float64(read))
	v.objects.WithLabelValues(resource, stateMalformed).Set(float64(malformed))
}
