package claims

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/depcheck"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

func TestItIsPure(t *testing.T) {
	t.Parallel()
	depcheck.AssertNoDependency(t, ".", "k8s.io/client-go/...", "go.uber.org/zap/...", "go.uber.org/dig/...", "github.com/prometheus/...")
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func service(name string) plan.Name {
	namespace, name, _ := strings.Cut(name, "/")
	return plan.Name{Namespace: namespace, Name: name}
}

func hosts(names ...string) []plan.Claim {
	var all []plan.Claim
	for _, n := range names {
		all = append(all, plan.Claim{Host: n, Path: "/"})
	}
	return all
}

func services(names ...string) []plan.Name {
	var all []plan.Name
	for _, n := range names {
		all = append(all, service(n))
	}
	return all
}

func TestTheOldestHasIt(t *testing.T) {
	t.Parallel()
	r := New()
	taken, others := r.Set(service("a/young"), epoch.Add(time.Hour), hosts("x", "y"))
	assert.Empty(t, taken)
	assert.Empty(t, others)

	taken, others = r.Set(service("b/old"), epoch, hosts("x"))
	assert.Empty(t, taken, "it came later, and is older")
	assert.Equal(t, services("a/young"), others)

	taken, others = r.Set(service("a/young"), epoch.Add(time.Hour), hosts("x", "y"))
	assert.Equal(t, map[plan.Claim]plan.Name{hosts("x")[0]: service("b/old")}, taken)
	assert.Empty(t, others, "nothing has changed")
}

func TestOfTwoOfOneSecondTheNameDecides(t *testing.T) {
	t.Parallel()
	r := New()
	for _, n := range []string{"b/a", "a/b", "a/a"} {
		r.Set(service(n), epoch, hosts("x"))
	}
	for _, n := range []string{"b/a", "a/b"} {
		taken, _ := r.Set(service(n), epoch, hosts("x"))
		assert.Equal(t, service("a/a"), taken[hosts("x")[0]], n)
	}
	r.Set(service("a/a"), epoch, nil)
	taken, _ := r.Set(service("b/a"), epoch, hosts("x"))
	assert.Equal(t, service("a/b"), taken[hosts("x")[0]], "the namespace before the name")
}

func TestClear(t *testing.T) {
	t.Parallel()
	r := New()
	r.Set(service("a/old"), epoch, hosts("x", "y"))
	r.Clear()
	assert.Equal(t, New(), r)
	taken, _ := r.Set(service("a/young"), epoch.Add(time.Hour), hosts("x"))
	assert.Empty(t, taken)
}

func TestHandOver(t *testing.T) {
	t.Parallel()
	r := New()
	for i, n := range []string{"a/1", "a/2", "a/3"} {
		r.Set(service(n), epoch.Add(time.Duration(i)*time.Second), hosts("x", "y"))
	}
	_, others := r.Set(service("a/2"), epoch.Add(time.Second), nil)
	assert.Empty(t, others, "who waited is gone, and nobody has anything more")

	_, others = r.Set(service("a/1"), epoch, hosts("x"))
	assert.Equal(t, services("a/3"), others, "of two claims the first gave up one")
	taken, _ := r.Set(service("a/3"), epoch.Add(2*time.Second), hosts("x", "y"))
	assert.Equal(t, map[plan.Claim]plan.Name{hosts("x")[0]: service("a/1")}, taken)

	_, others = r.Set(service("a/1"), epoch, nil)
	assert.Equal(t, services("a/3"), others)
	_, others = r.Set(service("a/3"), epoch, nil)
	assert.Empty(t, others)
	assert.Equal(t, New(), r, "nothing is left of those that are gone")
}

func TestEveryOneIsToldOnce(t *testing.T) {
	t.Parallel()
	r := New()
	for i, n := range []string{"a/1", "a/3", "a/2"} {
		r.Set(service(n), epoch.Add(time.Duration(i)*time.Second), hosts("x", "y", "z"))
	}
	_, others := r.Set(service("a/1"), epoch, hosts("x"))
	assert.Equal(t, services("a/2", "a/3"), others)
}

func TestOneMadeAnewIsYounger(t *testing.T) {
	t.Parallel()
	r := New()
	r.Set(service("a/1"), epoch, hosts("x"))
	r.Set(service("a/2"), epoch.Add(time.Second), hosts("x"))
	taken, others := r.Set(service("a/1"), epoch.Add(time.Minute), hosts("x"))
	assert.Equal(t, service("a/2"), taken[hosts("x")[0]])
	assert.Equal(t, services("a/2"), others)

	_, others = r.Set(service("a/1"), epoch.Add(time.Hour), hosts("x"))
	assert.Empty(t, others, "it waits as it did")
}

func TestModelsShareAHost(t *testing.T) {
	t.Parallel()
	r := New()
	model := func(name string) []plan.Claim {
		return []plan.Claim{{Host: "llm.example.com", Path: "/", Model: plan.Model{Header: "X-Model", Name: name}}}
	}
	r.Set(service("a/1"), epoch, model("one"))
	taken, _ := r.Set(service("a/2"), epoch.Add(time.Second), model("two"))
	assert.Empty(t, taken)
	taken, _ = r.Set(service("a/3"), epoch.Add(time.Second), model("one"))
	assert.NotEmpty(t, taken)
}

func TestTheCallersListIsItsOwn(t *testing.T) {
	t.Parallel()
	r := New()
	list := hosts("x")
	r.Set(service("a/1"), epoch, list)
	list[0].Host = "y"
	_, others := r.Set(service("a/1"), epoch, nil)
	assert.Empty(t, others)
	taken, _ := r.Set(service("a/2"), epoch.Add(time.Second), hosts("x", "y"))
	assert.Empty(t, taken)
}

// model is what a Registry must do, without an index: it looks at everything every time.
type model struct {
	created map[plan.Name]time.Time
	claims  map[plan.Name][]plan.Claim
}

// winner returns the oldest that wants a claim.
func (m *model) winner(c plan.Claim) string {
	best := ""
	for name, claims := range m.claims {
		key := fmt.Sprintf("%020d %s/%s", m.created[name].Unix(), name.Namespace, name.Name)
		if slices.Contains(claims, c) && (best == "" || key < best) {
			best = key
		}
	}
	_, name, _ := strings.Cut(best, " ")
	return name
}

func TestItDoesAsANaiveModelDoes(t *testing.T) {
	t.Parallel()
	const rounds, names, claims = 800, 12, 6
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 7))
		r, m := New(), &model{created: map[plan.Name]time.Time{}, claims: map[plan.Name][]plan.Claim{}}
		universe := hosts(strings.Split("uvwxyz", "")[:claims]...)
		for round := range rounds {
			name := service(fmt.Sprintf("%c/%c", 'a'+random.IntN(2), 'a'+random.IntN(names/2)))
			created, exists := m.created[name]
			if !exists || random.IntN(10) == 0 { // few seconds, so that there are ties
				created = epoch.Add(time.Duration(random.IntN(5)) * time.Second)
			}
			var wanted []plan.Claim
			for _, i := range random.Perm(claims)[:random.IntN(claims)] {
				wanted = append(wanted, universe[i])
			}
			before := map[plan.Claim]string{}
			for _, c := range universe {
				before[c] = m.winner(c)
			}
			delete(m.created, name)
			delete(m.claims, name)
			if len(wanted) > 0 {
				m.created[name], m.claims[name] = created, wanted
			}

			taken, others := r.Set(name, created, wanted)

			told := map[plan.Name]bool{}
			for _, c := range universe {
				winner := m.winner(c)
				if slices.Contains(wanted, c) && winner != name.String() {
					require.Equal(t, winner, taken[c].String(), "round %d, %s", round, c.Host)
				} else {
					require.NotContains(t, taken, c, "round %d", round)
				}
				for other, theirs := range m.claims {
					if other != name && winner != before[c] && slices.Contains(theirs, c) {
						told[other] = true
					}
				}
			}
			require.Len(t, others, len(told), "round %d", round)
			for _, o := range others {
				require.True(t, told[o], "round %d: %s was told for nothing", round, o)
			}
		}
	}
}

func BenchmarkSetUnchanged(b *testing.B) {
	r := New()
	for i := range 2000 {
		r.Set(service(fmt.Sprintf("a/%d", i)), epoch, hosts(fmt.Sprint(i), "shared"))
	}
	mine := hosts("7", "shared")
	for b.Loop() {
		r.Set(service("a/7"), epoch, mine)
	}
}
