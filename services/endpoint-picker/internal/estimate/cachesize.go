package estimate

import "fairlead.dev/services/endpoint-picker/internal/endpoint"

// CacheSize is how the size of the servers' KV caches is determined.
type CacheSize struct {
	Blocks   int  // assumed size, in blocks of prefixindex.BlockTokens
	FromPage bool // the size on the metrics page counts instead, once it is known
}

// blocks returns the size of a cache whose page reports that many blocks, 0 for none.
func (s *CacheSize) blocks(page int) int {
	if s.FromPage && page > 0 {
		return page
	}
	return s.Blocks
}

// SetCacheSize changes how the size of caches is determined, for these endpoints and for new ones. An endpoint that is made at
// the same moment follows with its next page.
func (x *Estimator) SetCacheSize(s CacheSize, endpoints []*endpoint.Endpoint) {
	x.size.Store(&s)
	for _, e := range endpoints {
		ServerOf(e).resize(0)
	}
}

// resize passes the size of the cache to the index. page is the size on a new page, 0 for none.
func (s *Server) resize(page int) {
	s.sizeMu.Lock()
	defer s.sizeMu.Unlock()
	if page > 0 {
		s.pageBlocks = page
	}
	if blocks := s.estimator.size.Load().blocks(s.pageBlocks); blocks != s.blocks {
		s.blocks = blocks
		s.estimator.index.Resize(s.cache, blocks)
	}
}
