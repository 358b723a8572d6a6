package endpoint

// CacheSize is how the size of the servers' caches is determined.
type CacheSize struct {
	Blocks   int  // assumed size, in blocks of prefix.BlockTokens
	FromPage bool // the size on the metrics page counts instead, once it is known
}

// blocks returns the size of a cache whose page has told so many blocks, 0 for none.
func (s *CacheSize) blocks(page int) int {
	if s.FromPage && page > 0 {
		return page
	}
	return s.Blocks
}

// SetCacheSize changes how the size of caches is determined, for these endpoints and for new ones. An endpoint that is made at
// the same moment follows with its next page.
func (f *Factory) SetCacheSize(s CacheSize, endpoints []*Endpoint) {
	f.size.Store(&s)
	for _, e := range endpoints {
		e.resize(0)
	}
}

// resize passes the size of the cache to the index. page is the size on a new page, 0 for none.
func (e *Endpoint) resize(page int) {
	if e.prefixes == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if page > 0 {
		e.pageBlocks = page
	}
	if blocks := e.size.Load().blocks(e.pageBlocks); blocks != e.blocks {
		e.blocks = blocks
		e.prefixes.Resize(e.cache, blocks)
	}
}
