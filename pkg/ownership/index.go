package ownership

// index finds the claims of one host that conflict with a claim, without checking the others.
type index struct {
	at    map[string]*bucket // by path
	under map[string]*bucket // by each parent path
}

func newIndex() *index { return &index{at: map[string]*bucket{}, under: map[string]*bucket{}} }

func (x *index) add(a *ask) {
	put(x.at, a.Path, a)
	prefixes(a.Path, func(path string) { put(x.under, path, a) })
}

func (x *index) remove(a *ask) {
	drop(x.at, a.Path, a)
	prefixes(a.Path, func(path string) { drop(x.under, path, a) })
}

func (x *index) empty() bool { return len(x.at) == 0 }

// conflicting calls f with each claim of another owner that conflicts with a.
func (x *index) conflicting(a *ask, f func(*ask)) {
	prefixes(a.Path, func(path string) { x.at[path].conflicting(a, above, f) })
	x.at[a.Path].conflicting(a, same, f)
	x.under[a.Path].conflicting(a, below, f)
}

func put(buckets map[string]*bucket, path string, a *ask) {
	b := buckets[path]
	if b == nil {
		b = &bucket{plain: set{}, versioned: set{}, unordered: set{}, headers: map[string]values{}}
		buckets[path] = b
	}
	b.add(a)
}

func drop(buckets map[string]*bucket, path string, a *ask) {
	b := buckets[path]
	if b.remove(a); len(b.plain) == 0 && len(b.headers) == 0 {
		delete(buckets, path)
	}
}

type set map[*ask]struct{}

// others calls f with each claim of another owner.
func (s set) others(a *ask, f func(*ask)) {
	for other := range s {
		if other.owner != a.owner {
			f(other)
		}
	}
}

// values are claims with one header, by its value.
type values map[string]set

func (v values) others(a *ask, f func(*ask)) {
	for _, s := range v {
		s.others(a, f)
	}
}

// bucket contains claims whose paths have the same relation to one path.
type bucket struct {
	plain     set
	versioned set               // of claims without headers
	headers   map[string]values // by name
	unordered set               // of claims with headers
}

func (b *bucket) add(a *ask) {
	if a.Header == "" {
		b.plain[a] = struct{}{}
		if versioned(a.Path) {
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

func (b *bucket) remove(a *ask) {
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

// conflicting calls f with each claim of another owner that conflicts with a. It decides like function conflict.
func (b *bucket) conflicting(a *ask, r relation, f func(*ask)) {
	switch {
	case b == nil:
	case a.Header == "" && r == above && !versioned(a.Path):
		b.plain.others(a, f)
		b.unordered.others(a, f)
	case a.Header == "":
		b.plain.others(a, f)
		for _, v := range b.headers {
			v.others(a, f)
		}
	default:
		if r != below || a.Unordered {
			b.plain.others(a, f)
		} else {
			b.versioned.others(a, f)
		}
		for name, v := range b.headers {
			if name == a.Header {
				v[a.Value].others(a, f)
			} else {
				v.others(a, f)
			}
		}
	}
}
