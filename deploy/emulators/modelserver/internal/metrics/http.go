package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
)

// HTTPRequest is an answered HTTP request, with the values of the FastAPI instrumentation of vLLM's server.
type HTTPRequest struct {
	Handler  string // route
	Method   string
	Status   int
	Duration time.Duration
	// From the Content-Length headers; 0 without this header, as for streams.
	RequestBytes, ResponseBytes int64
}

var (
	highResolutionBounds = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}
	lowResolutionBounds  = []float64{0.1, 0.5, 1}
)

type (
	requestKey struct{ handler, method, status string }
	routeKey   struct{ handler, method string }
)

type sizes struct{ count, sum float64 }

type route struct {
	layout  histogramLayout
	latency engine.Histogram
}

// httpStats are the families of HTTP requests. The first request of its kind adds a series.
type httpStats struct {
	created       []byte
	requests      map[requestKey]float64
	requestSizes  map[string]sizes
	responseSizes map[string]sizes
	routes        map[routeKey]*route
	latency       engine.Histogram
	layout        histogramLayout
}

func newHTTPStats(created []byte) *httpStats {
	return &httpStats{
		created:       created,
		requests:      make(map[requestKey]float64),
		requestSizes:  make(map[string]sizes),
		responseSizes: make(map[string]sizes),
		routes:        make(map[routeKey]*route),
		latency:       engine.NewHistogram(highResolutionBounds),
		layout:        newHistogramLayout("http_request_duration_highr_seconds", highResolutionBounds),
	}
}

func (h *httpStats) observe(r HTTPRequest) {
	seconds := r.Duration.Seconds()
	h.latency.Observe(seconds)
	h.requests[requestKey{r.Handler, r.Method, fmt.Sprintf("%dxx", r.Status/100)}]++
	addSize(h.requestSizes, r.Handler, r.RequestBytes)
	addSize(h.responseSizes, r.Handler, r.ResponseBytes)
	key := routeKey{r.Handler, r.Method}
	if h.routes[key] == nil {
		h.routes[key] = &route{
			latency: engine.NewHistogram(lowResolutionBounds),
			layout: newHistogramLayout("http_request_duration_seconds", lowResolutionBounds,
				label{"handler", r.Handler}, label{"method", r.Method}),
		}
	}
	h.routes[key].latency.Observe(seconds)
}

func addSize(m map[string]sizes, handler string, n int64) {
	s := m[handler]
	m[handler] = sizes{s.count + 1, s.sum + float64(max(n, 0))}
}

func (h *httpStats) append(dst []byte) []byte {
	dst = append(dst, header("http_requests_total", "counter", "Total number of requests by method, status and handler.")...)
	for _, key := range slices.SortedFunc(maps.Keys(h.requests), compareRequests) {
		prefix := series("http_requests_total", label{"handler", key.handler}, label{"method", key.method}, label{"status", key.status})
		dst = appendSample(dst, prefix, h.requests[key])
	}
	dst = append(dst, header("http_requests_created", "gauge", "Total number of requests by method, status and handler.")...)
	for _, key := range slices.SortedFunc(maps.Keys(h.requests), compareRequests) {
		dst = h.appendCreated(dst, "http_requests", label{"handler", key.handler}, label{"method", key.method}, label{"status", key.status})
	}
	dst = h.appendSizes(dst, "http_request_size_bytes", "Content length of incoming requests by handler. "+
		"Only value of header is respected. Otherwise ignored. No percentile calculated. ", h.requestSizes)
	dst = h.appendSizes(dst, "http_response_size_bytes", "Content length of outgoing responses by handler. "+
		"Only value of header is respected. Otherwise ignored. No percentile calculated. ", h.responseSizes)

	const help = "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. "
	dst = append(dst, header("http_request_duration_highr_seconds", "histogram", help)...)
	dst = h.layout.append(dst, &h.latency)
	dst = append(dst, header("http_request_duration_highr_seconds_created", "gauge", help)...)
	dst = h.appendCreated(dst, "http_request_duration_highr_seconds")
	return h.appendRoutes(dst)
}

func (h *httpStats) appendRoutes(dst []byte) []byte {
	const name = "http_request_duration_seconds"
	const help = "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. "
	routes := slices.SortedFunc(maps.Keys(h.routes), compareRoutes)
	dst = append(dst, header(name, "histogram", help)...)
	for _, key := range routes {
		dst = h.routes[key].layout.append(dst, &h.routes[key].latency)
	}
	dst = append(dst, header(name+"_created", "gauge", help)...)
	for _, key := range routes {
		dst = h.appendCreated(dst, name, label{"handler", key.handler}, label{"method", key.method})
	}
	return dst
}

func (h *httpStats) appendCreated(dst []byte, name string, labels ...label) []byte {
	return append(append(append(dst, series(name+"_created", labels...)...), h.created...), '\n')
}

func (h *httpStats) appendSizes(dst []byte, name, help string, m map[string]sizes) []byte {
	dst = append(dst, header(name, "summary", help)...)
	for _, handler := range slices.Sorted(maps.Keys(m)) {
		dst = appendSample(dst, series(name+"_count", label{"handler", handler}), m[handler].count)
		dst = appendSample(dst, series(name+"_sum", label{"handler", handler}), m[handler].sum)
	}
	dst = append(dst, header(name+"_created", "gauge", help)...)
	for _, handler := range slices.Sorted(maps.Keys(m)) {
		dst = h.appendCreated(dst, name, label{"handler", handler})
	}
	return dst
}

func compareRequests(a, b requestKey) int {
	return cmp.Or(cmp.Compare(a.handler, b.handler), cmp.Compare(a.method, b.method), cmp.Compare(a.status, b.status))
}

func compareRoutes(a, b routeKey) int {
	return cmp.Or(cmp.Compare(a.handler, b.handler), cmp.Compare(a.method, b.method))
}
