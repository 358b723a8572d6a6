package httpserver

import (
	"net/http"
	"time"
)

const (
	// maxWaiting is the number of connections of an address that wait for a request. A kubelet opens one for a probe, a scraper keeps
	// one. At half, more than 32 scrapers connect again for each scrape. At double, hostile clients hold 4 MiB more.
	maxWaiting = 64
	// maxProbes is the number of probes in progress. At half, an attacker needs half as many addresses to displace a probe. At double, a
	// check that hangs holds twice as many requests.
	maxProbes = 64
	// maxPages is the number of requests in progress on the metrics address. A page takes up to three times its size until its client
	// has read it: the picker's with 256 endpoints 1.4 MiB. At half, more than four scrapers at the same moment displace each
	// other. At double, pages that nobody reads hold twice as much.
	maxPages = 8

	// maxHeaderBytes limits the headers of a request; net/http adds 4 KiB. A token of a ServiceAccount has up to 2 KiB. At half, tokens
	// with many groups do not fit. At double, half requests hold twice as much.
	maxHeaderBytes = 8 << 10
	// maxBodyBytes limits bodies. Only pprof reads one: addresses to look up.
	maxBodyBytes = 64 << 10

	readTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
	// answerTimeout limits the time for an answer, and for a client to read it. A scrape has 10 s by default. At half, scrapes with a
	// longer timeout and a slow network fail. At double, clients that do not read keep their places for longer.
	answerTimeout = 30 * time.Second
	// profileTimeout limits the duration of CPU profiles and traces: pprof rejects longer ones.
	profileTimeout  = 2 * time.Minute
	shutdownTimeout = 5 * time.Second
)

func limitBody(h http.Handler) http.Handler { return http.MaxBytesHandler(h, maxBodyBytes) }

// limitAnswer limits the time of an answer of the metrics address, which is longer for profiles.
func limitAnswer(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // the server closes a broken connection
		h.ServeHTTP(w, r)
	})
}
