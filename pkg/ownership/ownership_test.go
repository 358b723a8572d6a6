package ownership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	epoch  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	victim = Owner{Namespace: "victim", Name: "chat"}
	evil   = Owner{Namespace: "evil", Name: "eve"}
	third  = Owner{Namespace: "third", Name: "x"}
)

func plain(path string) Claim { return Claim{Host: "h.example.com", Path: path} }

func header(path, name, value string) Claim {
	return Claim{Host: "h.example.com", Path: path, Header: name, Value: value}
}

func unordered(c Claim) Claim {
	c.Unordered = true
	return c
}

// conflictsWith decides for claims of one host whose paths are related. It is the model of bucket.eachConflictInBucket.
func conflictsWith(c, other Claim, r relation) bool {
	switch {
	case c.Header == "" && other.Header == "":
		return true
	case c.Header == "":
		return r != above || other.Unordered || isVersioned(c.Path)
	case other.Header == "":
		return r != below || c.Unordered || isVersioned(other.Path)
	}
	return c.Header != other.Header || c.Value == other.Value
}

// conflicts reports whether a request could match both claims without an order between them.
func conflicts(c, other Claim) bool {
	if c.Host != other.Host {
		return false
	}
	switch {
	case c.Path == other.Path:
		return conflictsWith(c, other, same)
	case strings.HasPrefix(c.Path, other.Path):
		return conflictsWith(c, other, above)
	case strings.HasPrefix(other.Path, c.Path):
		return conflictsWith(c, other, below)
	}
	return false
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		a, b Claim
		want bool
	}{
		{"the same", plain("/"), plain("/"), true},
		{"a longer path", plain("/"), plain("/v1/"), true},
		{"a deeper path", plain("/team/chat/"), plain("/team/chat/v1/"), true},
		{"siblings", plain("/team/chat/"), plain("/team/code/"), false},
		{"a prefix of letters is no prefix of elements", plain("/team/"), plain("/team-b/"), false},
		{"another host", plain("/"), Claim{Host: "i.example.com", Path: "/"}, false},
		{"two values of a header", header("/", "X-Model", "a"), header("/", "X-Model", "b"), false},
		{"one value of a header", header("/", "X-Model", "a"), header("/", "X-Model", "a"), true},
		{"two headers: a request may have both", header("/", "X-Model", "a"), header("/", "X-Team", "b"), true},
		{"a header at the path of a whole", plain("/"), header("/", "X-Model", "a"), true},
		{"a header below the path of a whole", plain("/"), header("/v1/", "X-Model", "a"), true},
		{"a path that is longer than that of a header", header("/", "X-Model", "a"), plain("/team/"), false},
		{"a longer path that model clients request", header("/", "X-Model", "a"), plain("/v1/chat/"), true},
		{"a longer path that begins like a version", header("/", "X-Model", "a"), plain("/vision/"), false},
		{"the same where lengths do not count", unordered(header("/", "X-Model", "a")), plain("/team/"), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, conflicts(tt.a, tt.b))
			assert.Equal(t, tt.want, conflicts(tt.b, tt.a))
		})
	}
}

func live(c Claim, after time.Duration) Ask { return Ask{Claim: c, Live: epoch.Add(after)} }

func TestTheIncumbentKeepsItsHost(t *testing.T) {
	t.Parallel()
	r := New()
	refused, changed := r.Set(victim, epoch.Add(time.Hour), []Ask{live(plain("/"), time.Hour)})
	assert.Empty(t, refused)
	assert.Empty(t, changed)
	for name, ask := range map[string]Ask{
		"the host":             {Claim: plain("/")},
		"a path of it":         {Claim: plain("/v1/")},
		"a header on it":       {Claim: header("/", "X-Model", "a")},
		"ready to write":       {Claim: plain("/"), Ready: true},
		"live, and later":      live(plain("/"), 2*time.Hour),
		"live with a path":     live(plain("/v1/"), 2*time.Hour),
		"another with a path":  {Claim: plain("/v1/chat/"), Ready: true},
		"as ready, with a tie": live(plain("/"), time.Hour+time.Second),
	} {
		refused, changed = r.Set(evil, epoch, []Ask{ask})
		assert.Equal(t, map[Claim]Conflict{ask.Claim: {Owner: victim, Claim: plain("/")}}, refused, name)
		assert.Empty(t, changed, name)
	}
	refused, _ = r.Set(victim, epoch.Add(time.Hour), []Ask{live(plain("/"), time.Hour)})
	assert.Empty(t, refused)
}

func TestAgeDecidesBetweenTwoThatHaveNothing(t *testing.T) {
	t.Parallel()
	r := New()
	refused, _ := r.Set(victim, epoch.Add(time.Hour), []Ask{{Claim: plain("/")}})
	assert.Empty(t, refused)
	refused, changed := r.Set(evil, epoch, []Ask{{Claim: plain("/v1/")}})
	assert.Empty(t, refused)
	assert.Equal(t, []Owner{victim}, changed)
	refused, changed = r.Set(victim, epoch.Add(time.Hour), []Ask{{Claim: plain("/"), Ready: true}})
	assert.Equal(t, map[Claim]Conflict{plain("/"): {Owner: evil, Claim: plain("/v1/")}}, refused)
	assert.Empty(t, changed)
}

func TestWhatIsBeingWrittenIsHeld(t *testing.T) {
	t.Parallel()
	r := New()
	young := epoch.Add(time.Hour)
	r.Set(victim, young, []Ask{{Claim: plain("/"), Ready: true}})
	refused, _ := r.Set(evil, epoch, []Ask{{Claim: plain("/"), Ready: true}})
	assert.Contains(t, refused, plain("/"), "before the object is seen")
	r.Set(victim, young, []Ask{{Claim: plain("/"), Ready: true}})
	refused, _ = r.Set(evil, epoch, []Ask{{Claim: plain("/"), Ready: true}})
	assert.Contains(t, refused, plain("/"), "as long as it is ready")
	_, changed := r.Set(victim, young, []Ask{{Claim: plain("/")}})
	assert.Equal(t, []Owner{evil}, changed, "no longer ready, and never written")
}

func TestTheNextOwnerIsToldWhenAClaimIsGone(t *testing.T) {
	t.Parallel()
	r := New()
	r.Set(victim, epoch, []Ask{live(plain("/"), 0)})
	r.Set(evil, epoch, []Ask{{Claim: plain("/v1/")}})
	r.Set(third, epoch.Add(time.Hour), []Ask{{Claim: plain("/v1/")}})
	_, changed := r.Set(victim, epoch, nil)
	assert.Equal(t, []Owner{evil, third}, changed, "one is granted, the other has another owner before it")
	refused, changed := r.Set(evil, epoch, nil)
	assert.Empty(t, refused)
	assert.Equal(t, []Owner{third}, changed)
	refused, _ = r.Set(third, epoch.Add(time.Hour), []Ask{{Claim: plain("/v1/")}})
	assert.Empty(t, refused)
	r.Clear()
	refused, _ = r.Set(evil, epoch.Add(time.Hour), []Ask{{Claim: plain("/v1/")}})
	assert.Empty(t, refused)
}

func TestClaimsOfOneOwnerDoNotConflict(t *testing.T) {
	t.Parallel()
	refused, _ := New().Set(victim, epoch, []Ask{{Claim: plain("/")}, {Claim: plain("/v1/")}, {Claim: plain("/")}, {Claim: header("/", "X-Model", "a")}})
	assert.Empty(t, refused)
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []Claim{plain("/"), plain("/a/b/"), header("/", "X-Model", "a=b")} {
		got, ok := Parse(c.String())
		assert.True(t, ok)
		assert.Equal(t, c, got)
	}
	for _, text := range []string{"", "/", "host", "host/a", "host/ ", "host/ x", "host/ =y", "host/ x="} {
		_, ok := Parse(text)
		assert.False(t, ok, text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("h.example.com/a/ X-Model=b")
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := Parse(text); ok {
			again, ok := Parse(c.String())
			assert.True(t, ok)
			assert.Equal(t, c, again)
		}
	})
}

// randomClaim has few hosts, paths and headers, so that many conflict.
func randomClaim(rng *rand.Rand) Claim {
	paths := []string{"/", "/a/", "/a/b/", "/a/b/c/", "/ab/", "/a/c/", "/d/", "/v1/", "/v1/a/"}
	c := Claim{Host: fmt.Sprintf("h%d", rng.IntN(2)), Path: paths[rng.IntN(len(paths))]}
	if rng.IntN(3) == 0 {
		c.Header, c.Value, c.Unordered = fmt.Sprintf("x%d", rng.IntN(2)), fmt.Sprintf("v%d", rng.IntN(3)), rng.IntN(2) == 0
	}
	return c
}

func randomAsks(rng *rand.Rand) []Ask {
	var asks []Ask
	for range rng.IntN(4) {
		a := Ask{Claim: randomClaim(rng), Ready: rng.IntN(2) == 0}
		if rng.IntN(3) == 0 {
			a.Live = epoch.Add(time.Duration(rng.IntN(5)) * time.Second)
		}
		asks = append(asks, a)
	}
	return asks
}

// TestAgainstAModel compares the registry, after each of many random changes, with one that decides everything anew by
// comparing all pairs.
func TestAgainstAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0))
		r := New()
		for range 40 {
			name := Owner{Namespace: "ns", Name: fmt.Sprintf("o%d", rng.IntN(6))}
			created := epoch.Add(time.Duration(rng.IntN(3)) * time.Minute)
			before := refusals(r)
			refused, changed := r.Set(name, created, randomAsks(rng))
			require.Equal(t, refused, r.refusedClaims(name))
			require.Equal(t, model(r), answers(r), "seed %d", seed)
			for owner, now := range refusals(r) {
				if owner != name {
					require.Equal(t, !assert.ObjectsAreEqual(before[owner], now), slices.Contains(changed, owner), "seed %d: %s is named exactly if its answer has changed", seed, owner)
				}
			}
			require.Empty(t, r.queue)
		}
	}
}

func refusals(r *Registry) map[Owner]map[Claim]Conflict {
	all := map[Owner]map[Claim]Conflict{}
	for name := range r.owners {
		all[name] = r.refusedClaims(name)
	}
	return all
}

// answers returns whether each claim of each owner is granted.
func answers(r *Registry) map[Owner]map[Claim]bool {
	all := map[Owner]map[Claim]bool{}
	for name, asks := range r.owners {
		all[name] = map[Claim]bool{}
		for c, a := range asks {
			all[name][c] = a.refused == nil
		}
	}
	return all
}

// model grants claims in their order, each unless it conflicts with one that was granted.
func model(r *Registry) map[Owner]map[Claim]bool {
	var asks, granted []*ask
	for _, o := range r.owners {
		for _, a := range o {
			asks = append(asks, a)
		}
	}
	slices.SortFunc(asks, compareAsks)
	all := map[Owner]map[Claim]bool{}
	for _, a := range asks {
		free := !slices.ContainsFunc(granted, func(g *ask) bool { return g.owner != a.owner && conflicts(g.Claim, a.Claim) })
		if free {
			granted = append(granted, a)
		}
		if all[a.owner] == nil {
			all[a.owner] = map[Claim]bool{}
		}
		all[a.owner][a.Claim] = free
	}
	return all
}

// TestTheResultDoesNotDependOnTheOrder sets the same claims in two orders, and all at once.
func TestTheResultDoesNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		world := map[Owner]Claims{}
		var names []Owner
		for i := range 8 {
			name := Owner{Namespace: "ns", Name: fmt.Sprintf("o%d", i)}
			asks := randomAsks(rng)
			for j := range asks {
				asks[j].Ready = false // what is held depends on who came first
			}
			world[name] = Claims{Created: epoch.Add(time.Duration(rng.IntN(3)) * time.Minute), Asks: asks}
			names = append(names, name)
		}
		atOnce := New()
		atOnce.SetAll(world)
		oneByOne := New()
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for _, name := range names {
			oneByOne.Set(name, world[name].Created, world[name].Asks)
		}
		require.Equal(t, answers(atOnce), answers(oneByOne), "seed %d", seed)
	}
}

// BenchmarkSharedHost adds one service to a host that 10 000 others share.
func BenchmarkSharedHost(b *testing.B) {
	world := map[Owner]Claims{}
	for i := range 10_000 {
		name := fmt.Sprintf("s%d", i)
		world[Owner{Namespace: name, Name: name}] = Claims{Created: epoch, Asks: []Ask{
			live(plain("/"+name+"/chat/"), 0), live(header("/", "X-Model", name), 0),
		}}
	}
	r := New()
	r.SetAll(world)
	b.ResetTimer()
	for range b.N {
		r.Set(victim, epoch, []Ask{{Claim: plain("/victim/chat/"), Ready: true}})
		r.Set(victim, epoch, nil)
	}
}

func TestDomains(t *testing.T) {
	t.Parallel()
	d := Domains{"team-a.example.com", "example.org"}
	for host, want := range map[string]bool{
		"team-a.example.com": true, "chat.team-a.example.com": true, "a.b.example.org": true,
		"example.com": false, "team-b.example.com": false, "evil-example.org": false, "example.org.evil.com": false, "": false,
	} {
		assert.Equal(t, want, d.Contain(host), host)
	}
	assert.False(t, Domains(nil).Contain("example.com"))
}

func TestFirstElement(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/": "", "/team/": "team", "/team/chat/": "team"} {
		assert.Equal(t, want, FirstElement(path))
	}
}
