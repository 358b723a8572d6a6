package plugins

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

type (
	pickRequest = scheduling.Request
	candidate   = scheduling.Candidate
	load        = scheduling.Load
	page        = scheduling.Page
	adapters    = scheduling.Adapters
	server      = scheduling.Server
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// noPlugins declares nothing.
type noPlugins struct{}

func (noPlugins) Declares(string) bool { return false }

func (noPlugins) Refer(string, string) (Plugin, bool) { return nil, false }

// build returns a plugin with the given parameters, in YAML, as a configuration does.
func build[T any](t testing.TB, typeName, parameters string) T {
	t.Helper()
	typed, ok := FindType(typeName)
	require.True(t, ok, typeName)
	p := typed.New(Environment{StaleAfter: time.Second})
	var c strictyaml.Checker
	if parameters != "" {
		document, err := strictyaml.Parse([]byte(parameters), strictyaml.Options{MaxBytes: 1 << 20})
		require.NoError(t, err)
		document.Decode(p)
		c = *document.Checker("")
	}
	p.Validate(&Check{Checker: &c, Plugins: noPlugins{}})
	if session, ok := p.(interface{ ApplyTo(b *Builder) }); ok {
		parts := &Parts{}
		parts.Scraping.Extractor = attributeExtractor
		session.ApplyTo(&Builder{Checker: &c, Reference: &c, Parts: parts})
	}
	require.NoError(t, c.AllProblems())
	return p.(T)
}

// attributeExtractor reads the custom metrics of the tests.
var attributeExtractor = customMetrics("t", "x")

func filter(t testing.TB, typeName, parameters string) scheduling.Filter {
	t.Helper()
	return build[scheduling.Filter](t, typeName, parameters)
}

func scorer(t testing.TB, typeName, parameters string) scheduling.Scorer {
	t.Helper()
	return build[scheduling.Scorer](t, typeName, parameters)
}

func picker(t testing.TB, typeName, parameters string) scheduling.Picker {
	t.Helper()
	return build[scheduling.Picker](t, typeName, parameters)
}

// busy returns candidates with these loads, numbered from 0.
func busy(loads ...load) []candidate {
	candidates := make([]candidate, 0, len(loads))
	for i, l := range loads {
		candidates = append(candidates, candidate{Index: i, Load: l})
	}
	return candidates
}

func indexes(candidates []candidate) []int {
	list := []int{}
	for _, c := range candidates {
		list = append(list, c.Index)
	}
	return list
}

// servers returns idle candidates on pods ns/a, ns/b and so on, each with one of the sets of labels.
func servers(sets ...map[string]string) []candidate {
	candidates := busy(make([]load, len(sets))...)
	for i, set := range sets {
		candidates[i].Server = &server{
			Name: "ns/" + string(rune('a'+i)), Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 8000), Labels: set,
		}
	}
	return candidates
}

func role(r string) map[string]string { return map[string]string{RoleLabel: r} }

// pages returns candidates with these custom metrics, and one without a page.
func pages(attributes ...map[string]float64) []candidate {
	loads := make([]load, len(attributes))
	for i, a := range attributes {
		loads[i].Page = &page{Attributes: a}
	}
	return busy(append(loads, load{})...)
}

// matched returns candidates whose caches contain the given numbers of tokens of the prompt.
func matched(loads []load, tokens ...int) []candidate {
	candidates := busy(loads...)
	for i := range tokens {
		candidates[i].Matched = tokens[i]
	}
	return candidates
}

func TestTypesAreSortedAndComplete(t *testing.T) {
	t.Parallel()
	types := Types()
	assert.True(t, slices.IsSortedFunc(types, func(a, b Type) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	}))
	for _, typed := range types {
		_, refused := Replacement(typed.Name)
		_, ignored := Unneeded(typed.Name)
		assert.False(t, refused || ignored, typed.Name)
		assert.NotNil(t, typed.New(Environment{}), typed.Name)
		if a, b := typed.New(Environment{}), typed.New(Environment{}); reflect.TypeOf(a).Elem().Size() > 0 {
			assert.NotSame(t, a, b, "%s: plugins of one type share parameters", typed.Name)
		}
	}
	for name := range replacements {
		_, ignored := Unneeded(name)
		assert.False(t, ignored, name)
	}
	for section, want := range map[Section][]string{
		SectionProfile: {"max-score-picker"}, SectionSaturation: {"utilization-detector"}, SectionSources: {"metrics-data-source"},
		SectionExtractors: {"core-metrics-extractor"}, SectionNone: nil,
	} {
		var names []string
		for _, typed := range Defaults(section) {
			names = append(names, typed.Name)
		}
		assert.Equal(t, want, names, section)
	}
}

func TestStalenessKeepsOrderAndBoundary(t *testing.T) {
	t.Parallel()
	fresh := Staleness{After: time.Second}
	at := func(age time.Duration) load { return load{Failing: endpoint.ToMonotonic(noon.Add(-age))} }
	r := &pickRequest{Now: noon}
	assert.Equal(t, []int{0, 2, 3}, indexes(fresh.Filter(r, busy(at(0), at(2*time.Second), at(time.Second), at(time.Second/2)))))
	assert.Equal(t, []int{0}, indexes(fresh.Filter(r, busy(at(time.Second), at(time.Hour)))), "exactly at the limit")
	assert.Equal(t, []int{0, 1}, indexes(fresh.Filter(r, busy(at(time.Minute), at(time.Hour)))), "without a fresh one all stay")
	assert.Equal(t, []int{0, 1}, indexes(fresh.Filter(r, busy(at(0), at(0)))))
}
