package estimate

import (
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// A SavedServer is what the next process should know of a server, besides the contents of its cache.
type SavedServer struct {
	Blocks        int     // size of the cache on the last page that reported it, in blocks of 16 tokens; 0 for none
	Queries, Hits float64 // counters of the last page: lower ones are those of a server that has restarted
	Ratio         float64 // of the tokens of texts in the pool
}

// SavedServer returns what is known of a server.
func (x *Estimator) SavedServer(e *endpoint.Endpoint) SavedServer {
	s, page := ServerOf(e), e.Sample()
	s.sizeMu.Lock()
	defer s.sizeMu.Unlock()
	return SavedServer{Blocks: s.pageBlocks, Queries: page.Queries, Hits: page.Hits, Ratio: x.tokenizers.meanRatio()}
}

// RestoreServer makes known of a new server what the last process knew.
func (x *Estimator) RestoreServer(e *endpoint.Endpoint, saved SavedServer) {
	s := ServerOf(e)
	x.tokenizers.restoreMean(saved.Ratio)
	s.fit.restoreCounters(saved.Queries, saved.Hits)
	s.resizeCache(min(saved.Blocks, unlimited))
}
