package ownership

// index finds the claims of one host that conflict with a claim, without checking the others.
type index struct {
	at    map[string]*bucket // by path
	under map[string]*bucket // by each parent path
}

func newIndex() *index { return &index{at: map[string]*bucket{}, under: map[string]*bucket{}} }

func (x *index) addAsk(a *ask) {
	putAsk(x.at, a.Path, a)
	eachPrefix(a.Path, func(path string) { putAsk(x.under, path, a) })
}

func (x *index) removeAsk(a *ask) {
	dropAsk(x.at, a.Path, a)
	eachPrefix(a.Path, func(path string) { dropAsk(x.under, path, a) })
}

func (x *index) isEmpty() bool { return len(x.at) == 0 }

// eachConflict calls f with each claim of another owner that conflicts with a.
func (x *index) eachConflict(a *ask, f func(*ask)) {
	eachPrefix(a.Path, func(path string) { x.at[path].eachConflictInBucket(a, above, f) })
	x.at[a.Path].eachConflictInBucket(a, same, f)
	x.under[a.Path].eachConflictInBucket(a, below, f)
}

func putAsk(buckets map[string]*bucket, path string, a *ask) {
	b := buckets[path]
	if b == nil {
		b = &bucket{plain: set{}, versioned: set{}, unordered: set{}, headers: map[string]values{}}
		buckets[path] = b
	}
	b.addToBucket(a)
}

func dropAsk(buckets map[string]*bucket, path string, a *ask) {
	b := buckets[path]
	if b.removeFromBucket(a); len(b.plain) == 0 && len(b.headers) == 0 {
		delete(buckets, path)
	}
}

type set map[*ask]struct{}

// eachOther calls f with each claim of another owner.
func (s set) eachOther(a *ask, f func(*ask)) {
	for other := range s {
		if other.owner != a.owner {
			f(other)
		}
	}
}

// values are claims with one header, by its value.
type values map[string]set

func (v values) eachOtherValue(a *ask, f func(*ask)) {
	for _, s := range v {
		s.eachOther(a, f)
	}
}

// bucket contains claims whose paths have the same relation to one path.
type bucket struct {
	plain     set
	versioned set               // of claims without headers
	headers   map[string]values // by name
	unordered set               // of claims with headers
}

func (b *bucket) addToBucket(a *ask) {
	if a.Header == "" {
		b.plain[a] = struct{}{}
		if isVersioned(a.Path) {
			b.versioned[a] = struct{}{}
		}
		return
	}
	v := b.headers[a.Header]
	if v == nil {
		v = values{}
		b.headers[a.Header] = v
	}
	if v[a.Value] == nil {
		v[a.Value] = set{}
	}
	v[a.Value][a] = struct{}{}
	if a.Unordered {
		b.unordered[a] = struct{}{}
	}
}

func (b *bucket) removeFromBucket(a *ask) {
	if a.Header == "" {
		delete(b.plain, a)
		delete(b.versioned, a)
		return
	}
	v := b.headers[a.Header]
	if delete(v[a.Value], a); len(v[a.Value]) == 0 {
		delete(v, a.Value)
	}
	if len(v) == 0 {
		delete(b.headers, a.Header)
	}
	delete(b.unordered, a)
}

// eachConflictInBucket calls f with each claim of another owner that conflicts with a, by the table in the package comment.
func (b *bucket) eachConflictInBucket(a *ask, r relation, f func(*ask)) {
	switch {
	case b == nil:
	case a.Header == "" && r == above && !isVersioned(a.Path):
		b.plain.eachOther(a, f)
		b.unordered.eachOther(a, f)
	case a.Header == "":
		b.plain.eachOther(a, f)
		for _, v := range b.headers {
			v.eachOtherValue(a, f)
		}
	default:
		if r != below || a.Unordered {
			b.plain.eachOther(a, f)
		} else {
			b.versioned.eachOther(a, f)
		}
		for name, v := range b.headers {
			if name == a.Header {
				v[a.Value].eachOther(a, f)
			} else {
				v.eachOtherValue(a, f)
			}
		}
	}
}
