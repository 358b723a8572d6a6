package estimate

import (
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// CacheSize is how the size of the servers' KV caches is determined.
type CacheSize struct {
	Blocks   int  // assumed size, in blocks of prefixindex.BlockTokens
	FromPage bool // the size on the metrics page counts instead, once it is known
}

// blocksFor returns the size of a cache whose page reports that many blocks, 0 for none, if each token has BytesPerToken.
func (s *CacheSize) blocksFor(page int) int {
	if s.FromPage && page > 0 {
		return page
	}
	return s.Blocks
}

// SetCacheSize changes how the size of caches is determined, for these endpoints and for new ones. An endpoint that is made at
// the same moment follows with ResizeCaches.
func (x *Estimator) SetCacheSize(s CacheSize, endpoints []*endpoint.Endpoint) {
	x.size.Store(&s)
	x.ResizeCaches(endpoints)
}

// ResizeCaches determines the size of the caches of these endpoints. Call it with new endpoints when they are known to the callers of
// SetCacheSize.
func (x *Estimator) ResizeCaches(endpoints []*endpoint.Endpoint) {
	for _, e := range endpoints {
		ServerOf(e).resizeCache(0)
	}
}

// resizeCache passes the size of the cache to the index: that of the page, or less if the server has shown to keep less. Small changes
// are chance, and a smaller size would make the index forget what the server still has. page is the size on a new page, 0 for none.
func (s *Server) resizeCache(page int) {
	s.sizeMu.Lock()
	defer s.sizeMu.Unlock()
	if page > 0 {
		s.pageBlocks = page
	}
	blocks := min(s.claimedBlocks(), s.fit.fittedSize())
	if change := blocks - s.blocks; float64(max(change, -change)) > resizePart*float64(s.blocks) {
		s.blocks = blocks
		s.estimator.index.ResizeCache(s.cache, blocks)
	}
}

// claimedBlocks returns the size of the cache without what the server has shown, in blocks of the index. sizeMu is held.
func (s *Server) claimedBlocks() int {
	return int(s.estimator.tokensToBlocks(float64(s.estimator.size.Load().blocksFor(s.pageBlocks) * prefixindex.BlockTokens)))
}

// claimedSize is claimedBlocks for callers without sizeMu.
func (s *Server) claimedSize() int {
	s.sizeMu.Lock()
	defer s.sizeMu.Unlock()
	return s.claimedBlocks()
}
