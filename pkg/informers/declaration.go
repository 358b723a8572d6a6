package informers

// Declaration calls add for each kind that a program reads, and returns the caches of the program: what add returned.
type Declaration[C any] func(add func(Kind) Informer) C

// Watch returns the caches of informers that run with a Group.
func (d Declaration[C]) Watch(g *Group) C {
	return d(func(k Kind) Informer { return g.Add(k) })
}

// Read returns the caches of objects that were read once.
func (d Declaration[C]) Read(s Snapshot) (C, error) {
	var failed error
	caches := d(func(k Kind) Informer {
		reader, err := s.Reader(k)
		if err != nil {
			failed = err
		}
		return reader
	})
	return caches, failed // the error names the object
}

// EnabledKinds returns the kinds that are not off.
func (d Declaration[C]) EnabledKinds() []Kind {
	var enabled []Kind
	d(func(k Kind) Informer {
		if !k.Off {
			enabled = append(enabled, k)
		}
		return nil
	})
	return enabled
}
