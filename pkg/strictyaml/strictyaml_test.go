package strictyaml

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inner is embedded in sample.
type inner struct {
	Share float64 `yaml:"share"`
}

// sample has a field of each kind.
type sample struct {
	inner

	Name    string            `yaml:"name"`
	On      bool              `yaml:"on"`
	Count   int               `yaml:"count"`
	Wait    time.Duration     `yaml:"wait"`
	Address netip.Addr        `yaml:"address"`
	Pointer *int              `yaml:"pointer"`
	List    []string          `yaml:"list"`
	Parts   []inner           `yaml:"parts"`
	Labels  map[string]string `yaml:"labels"`
	Rest    Raw               `yaml:"rest"`
	Hidden  string            `yaml:"-"`
	derived string
}

var options = Options{MaxBytes: 1 << 10, Empty: "give a name"}

func decode(text string) (sample, error) {
	s := sample{Name: "default", Count: 7}
	d, err := Parse([]byte(text), options)
	if err != nil {
		return s, err
	}
	d.Decode(&s)
	return s, d.AllProblems()
}

func TestDecode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give string
		want sample
	}{
		{name: "missing fields keep their values", give: "{}", want: sample{Name: "default", Count: 7}},
		{name: "null, too", give: "{name: null, count: ~, list: }", want: sample{Name: "default", Count: 7}},
		{
			name: "all kinds",
			give: "{share: 0.5, name: a, on: true, count: 3, wait: 1m30s, address: 10.0.0.1, pointer: 0, list: [a, b], parts: [{share: 1}, {}], labels: {a.b/c: d}}",
			want: sample{
				inner: inner{0.5}, Name: "a", On: true, Count: 3, Wait: 90 * time.Second, Address: netip.MustParseAddr("10.0.0.1"), Pointer: new(0),
				List: []string{"a", "b"}, Parts: []inner{{1}, {}}, Labels: map[string]string{"a.b/c": "d"},
			},
		},
		{name: "JSON", give: `{"name": "a", "count": 3}`, want: sample{Name: "a", Count: 3}},
		{name: "booleans of YAML 1.1", give: "{on: yes}", want: sample{Name: "default", On: true, Count: 7}},
		{name: "a whole number with an exponent", give: "count: 3e+06", want: sample{Name: "default", Count: 3_000_000}},
		{name: "a date as a string", give: "name: 2026-11-28", want: sample{Name: "2026-11-28", Count: 7}},
		{name: "a number without a fraction for one with", give: "share: 1", want: sample{inner: inner{1}, Name: "default", Count: 7}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := decode(tt.give)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestPlainStrings(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte("{name: 007, list: [true, 1.10, [a]], labels: {a: 1}}"), Options{MaxBytes: 1 << 10, PlainStrings: true})
	require.NoError(t, err)
	var got sample
	d.Decode(&got)
	assert.Equal(t, sample{Name: "007", List: []string{"true", "1.10", ""}, Labels: map[string]string{"a": "1"}}, got)
	require.EqualError(t, d.AllProblems(), "line 1, column 32: list[2]: a list is not a string: put it in quotes if it should be")
}

func TestProblems(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "empty", give: "", want: "it is empty: give a name"},
		{name: "only a comment", give: "# a\n", want: "it is empty: give a name"},
		{name: "too large", give: strings.Repeat("#", 1<<10+1), want: "it has 1025 bytes: the maximum is 1024"},
		{name: "not YAML", give: "a: [b\nc: d", want: "line 1, column 1: it is not YAML: did not find expected ',' or ']'"},
		{name: "not YAML behind it", give: "name: a\n---\n[", want: "line 3, column 1: it is not YAML: did not find expected node content"},
		{name: "two documents", give: "name: a\n---\nname: b", want: "line 2, column 1: there is more than one document: keep one"},
		{name: "aliases", give: "name: &a b\nlist: [*a]", want: "line 1, column 7: anchors and aliases are not supported: write the value out\nline 2, column 8: anchors and aliases are not supported: write the value out"},
		{name: "not a mapping", give: "- a", want: "line 1, column 1: a list has no fields"},
		{name: "unknown field", give: "naem: a", want: `line 1, column 1: naem: unknown field: did you mean "name"?`},
		{name: "unknown field, nothing near", give: "parts: [{other: 1}]", want: "line 1, column 10: parts[0].other: unknown field: use one of share"},
		{name: "field without a name in texts", give: "hidden: a", want: "line 1, column 1: hidden: unknown field: use one of share, name, on, count, wait, address, pointer, list, parts, labels, rest"},
		{name: "twice", give: "name: a\nname: b", want: "line 2, column 1: name: it is listed twice, first in line 1: keep one"},
		{name: "twice in a map", give: "labels: {a: b, a: c}", want: "line 1, column 16: labels.a: it is listed twice, first in line 1: keep one"},
		{name: "a name that is a list", give: "[a]: b", want: "line 1, column 1: the name of a field must be a string"},
		{name: "a name that is null", give: "labels: {~: b}", want: "line 1, column 10: labels: the name of a field must be a string"},
		{name: "a merge", give: "labels: {<<: {a: b}}", want: "line 1, column 10: labels.<<: merge keys are not supported: write the fields out"},
		{name: "not a string", give: "name: 1", want: `line 1, column 7: name: "1" is not a string: put it in quotes if it should be`},
		{name: "not a boolean", give: "on: 1", want: `line 1, column 5: on: "1" is neither true nor false`},
		{name: "a boolean in quotes", give: "on: 'yes'", want: `line 1, column 5: on: "yes" is neither true nor false`},
		{name: "not a whole number", give: "count: 1.5", want: `line 1, column 8: count: "1.5" is not a whole number`},
		{name: "a number that is too large", give: "count: 3e100", want: `line 1, column 8: count: "3e100" is out of range`},
		{name: "not a number", give: "share: a", want: `line 1, column 8: share: "a" is not a number`},
		{name: "infinite", give: "share: .inf", want: `line 1, column 8: share: ".inf" is out of range`},
		{name: "not a duration", give: "wait: 200", want: `line 1, column 7: wait: "200" is not a duration: give one such as 200ms or 1m30s`},
		{name: "not a text", give: "address: [1]", want: "line 1, column 10: address: a list is not a string"},
		{name: "an invalid text", give: "address: x", want: `line 1, column 10: address: ParseAddr("x"): unable to parse IP`},
		{name: "not a list", give: "list: {a: b}", want: "line 1, column 7: list: a mapping is not a list"},
		{name: "not a map", give: "labels: [a]", want: "line 1, column 9: labels: a list has no fields"},
		{name: "a long value", give: "count: " + strings.Repeat("x", 200), want: fmt.Sprintf("line 1, column 8: count: %q is not a whole number", strings.Repeat("x", 100))},
		{
			name: "all of them, in the order of lines", give: "count: a\nname: 1\nlist: b",
			want: "line 1, column 8: count: \"a\" is not a whole number\nline 2, column 7: name: \"1\" is not a string: put it in quotes if it should be\nline 3, column 7: list: \"b\" is not a list",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := decode(tt.give)
			require.EqualError(t, err, tt.want)
			var problems TextError
			require.ErrorAs(t, err, &problems)
		})
	}
}

func TestRaw(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte("name: a\nrest: {share: 0.5, extra: 1}"), options)
	require.NoError(t, err)
	var s sample
	d.Decode(&s)
	require.NoError(t, d.AllProblems())
	require.True(t, s.Rest.IsSet())
	assert.False(t, s.Rest.IsEmpty())
	var later inner
	d.DecodeAt("rest", s.Rest, &later)
	assert.Equal(t, inner{0.5}, later)
	require.EqualError(t, d.AllProblems(), "line 2, column 20: rest.extra: unknown field: use one of share")
	assert.True(t, d.IsInvalid("rest.extra"))
	assert.False(t, d.IsInvalid("rest"))
	for _, empty := range []string{"{}", "rest: ", "rest: {}", "rest: []"} {
		s, err := decode(empty)
		require.NoError(t, err)
		assert.True(t, s.Rest.IsEmpty(), empty)
		assert.Equal(t, strings.HasSuffix(empty, "}") && empty != "{}" || strings.HasSuffix(empty, "]"), s.Rest.IsSet(), empty)
	}
}

// Types of Kubernetes have json tags only.
func TestDecodeTypesOfKubernetes(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte("matchLabels: {a: b}\nmatchExpressions:\n- {key: c, operator: In, value: [d]}"), Options{MaxBytes: 1 << 10})
	require.NoError(t, err)
	var s metav1.LabelSelector
	d.Decode(&s)
	assert.Equal(t, map[string]string{"a": "b"}, s.MatchLabels)
	assert.Equal(t, []metav1.LabelSelectorRequirement{{Key: "c", Operator: "In"}}, s.MatchExpressions)
	require.EqualError(t, d.AllProblems(), `line 3, column 26: matchExpressions[0].value: unknown field: did you mean "values"?`)

	d, err = Parse([]byte("a: 1.5\nb: 3000000000"), Options{MaxBytes: 1 << 10})
	require.NoError(t, err)
	var numbers struct {
		A int64 `json:"a"`
		B int32 `json:"b"`
	}
	d.Decode(&numbers)
	require.EqualError(t, d.AllProblems(), "line 1, column 4: a: \"1.5\" is not a whole number\nline 2, column 4: b: \"3000000000\" is out of range")
}

func TestEmptyTextsThatAreAllowed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# only a comment", "---", "null"} {
		d, err := Parse([]byte(text), Options{MaxBytes: 1 << 10})
		require.NoError(t, err, text)
		s := sample{Name: "default"}
		d.Decode(&s)
		require.NoError(t, d.AllProblems(), text)
		assert.Equal(t, sample{Name: "default"}, s, text)
	}
}

func TestFieldOf(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte("other: &o {share: 1}\nname: a\npart: *o\nlist: [b]"), Options{MaxBytes: 1 << 10, Aliases: true})
	require.NoError(t, err)
	name, ok := d.FieldOf("name").Text()
	assert.True(t, ok)
	assert.Equal(t, "a", name)
	_, ok = d.FieldOf("part").Text()
	assert.False(t, ok)
	var part inner
	d.DecodeAt("part", d.FieldOf("part"), &part)
	require.NoError(t, d.AllProblems())
	assert.Equal(t, inner{1}, part)
	assert.False(t, d.FieldOf("missing").IsSet())
	_, ok = d.FieldOf("missing").Text()
	assert.False(t, ok)
	var whole inner
	d.DecodeAt("", d.FieldOf(""), &whole)
	require.ErrorContains(t, d.AllProblems(), "line 2, column 1: name: unknown field: use one of share")
}

func TestAliases(t *testing.T) {
	t.Parallel()
	o := options
	o.Aliases = true
	d, err := Parse([]byte("name: &a b\nlist: [*a, c]\nparts: [&p {share: 0.5}, *p]"), o)
	require.NoError(t, err)
	var s sample
	d.Decode(&s)
	require.NoError(t, d.AllProblems())
	assert.Equal(t, []string{"b", "c"}, s.List)
	assert.Equal(t, []inner{{0.5}, {0.5}}, s.Parts)
}

func TestAliasesThatGrow(t *testing.T) {
	t.Parallel()
	text := "parts: [&p {share: 0.5}" + strings.Repeat(", *p", 2000) + "]"
	lists := "lists: [&l [" + strings.Repeat("a, ", 2000) + "]" + strings.Repeat(", *l", 2000) + "]"
	d, err := Parse([]byte(text+"\n"+lists), Options{MaxBytes: 1 << 20, Aliases: true})
	require.NoError(t, err)
	var s struct {
		Parts []inner    `yaml:"parts"`
		Lists [][]string `yaml:"lists"`
	}
	d.Decode(&s)
	assert.Len(t, s.Parts, 2001)
	assert.Nil(t, s.Lists[2000], "nothing is decoded beyond the limit")
	require.EqualError(t, d.AllProblems(), "line 1, column 1: it has more than 524288 values: write fewer, or use fewer aliases")
}

func TestChecker(t *testing.T) {
	t.Parallel()
	tests := []struct {
		check func(c *Checker)
		want  string
	}{
		{check: func(c *Checker) { c.Share("a", 1.1) }, want: "a: 1.1 is out of range: give 0 to 1"},
		{check: func(c *Checker) { c.Positive("a", 0) }, want: "a: 0 is out of range: give more than 0"},
		{check: func(c *Checker) { c.NotNegative("a", -1) }, want: "a: -1 is out of range: give 0 or more"},
		{check: func(c *Checker) { c.Count("a", 0, 1) }, want: "a: 0 is out of range: give 1 to 1073741824"},
		{check: func(c *Checker) { c.Count("a", 1<<31, 1) }, want: "a: 2147483648 is out of range: give 1 to 1073741824"},
		{check: func(c *Checker) { c.Seconds("a", 4e9) }, want: "a: 4e+09 is out of range: give more than 0 seconds"},
		{check: func(c *Checker) { c.OneOf("a", "htp", "http", "https") }, want: `a: "htp" is not known: use one of http, https`},
		{check: func(c *Checker) { c.Header("a", "a b") }, want: `a: "a b" is not the name of a header`},
		{check: func(c *Checker) { c.Require(false, "", "it is %s", "wrong") }, want: "it is wrong"},
		{check: func(c *Checker) {
			c.Share("a", 1)
			c.Positive("a", 0.1)
			c.NotNegative("a", 0)
			c.Count("a", 1, 1)
			c.Seconds("a", 1)
			c.OneOf("a", "b", "b")
			c.Header("a", "X-Chat")
			c.Require(true, "a", "wrong")
			c.Warnf("a", "be careful")
		}},
	}
	for _, tt := range tests {
		var c Checker
		tt.check(&c)
		if tt.want == "" {
			require.NoError(t, c.AllProblems())
			continue
		}
		require.EqualError(t, c.AllProblems(), tt.want)
	}
}

func TestCheckerOfAText(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte("parts:\n- {share: 2}\n- {}"), options)
	require.NoError(t, err)
	var s sample
	d.Decode(&s)
	first, second := d.Checker("parts[0]"), d.Checker("parts[1]")
	first.Share("share", s.Parts[0].Share)
	assert.True(t, first.HasField("share"))
	assert.False(t, second.HasField("share"))
	second.Errorf("share", "it is missing")
	second.Errorf("", "it is empty")
	first.Warnf("share", "it is large")
	d.Checker("").Below("labels").Below("a").Errorf("b", "it is deep")
	require.EqualError(t, d.AllProblems(), "line 1, column 1: labels.a.b: it is deep\nline 2, column 11: parts[0].share: 2 is out of range: give 0 to 1\n"+
		"line 3, column 3: parts[1].share: it is missing\nline 3, column 3: parts[1]: it is empty")
	assert.EqualError(t, TextError(d.Warnings()), "line 2, column 11: parts[0].share: it is large")
}

func TestErrorOfManyProblemsIsShort(t *testing.T) {
	t.Parallel()
	d, err := Parse([]byte(strings.Repeat("- {}\n", 10_000)), Options{MaxBytes: 1 << 20})
	require.NoError(t, err)
	for i := range 10_000 {
		d.Errorf(Indexed("", i), "it is empty")
	}
	lines := strings.Split(d.AllProblems().Error(), "\n")
	require.Len(t, lines, shownProblems+1)
	assert.Equal(t, "and 9900 more", lines[shownProblems])
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"queue-scorer", "random-picker", "type"}
	for give, want := range map[string]string{
		"queue-score": "queue-scorer", "Queue-Scorer": "queue-scorer", "quee-scorre": "queue-scorer", "typ": "type", "tpye": "type",
		"randompicker": "random-picker", "x": "", "": "", "something-else": "",
	} {
		assert.Equal(t, want, Nearest(give, names), give)
	}
	assert.Equal(t, "leave it out", Hint("x", nil))
}

// FuzzDecode checks that a text is refused with a reason, or means the same to the YAML library.
func FuzzDecode(f *testing.F) {
	f.Add("{share: 0.5, name: a, on: true, count: 3, wait: 1m30s, pointer: 0, list: [a, b], parts: [{share: 1}, {}], labels: {a: b}}")
	f.Add("name: &a b\nlist: [*a]\n<<: {count: 1}")
	f.Add("labels: {0x10: 'a', ~: b}")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := decode(text)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		type plain struct {
			Share   float64           `yaml:"share"`
			Name    string            `yaml:"name"`
			On      bool              `yaml:"on"`
			Count   int               `yaml:"count"`
			Wait    time.Duration     `yaml:"wait"`
			Address netip.Addr        `yaml:"address"`
			Pointer *int              `yaml:"pointer"`
			List    []string          `yaml:"list"`
			Parts   []inner           `yaml:"parts"`
			Labels  map[string]string `yaml:"labels"`
			Rest    any               `yaml:"rest"`
		}
		want := plain{Name: "default", Count: 7}
		require.NoError(t, yaml.Unmarshal([]byte(text), &want))
		mine := plain{got.Share, got.Name, got.On, got.Count, got.Wait, got.Address, got.Pointer, got.List, got.Parts, got.Labels, nil}
		want.Rest = nil
		a, err := json.Marshal(want)
		require.NoError(t, err)
		b, err := json.Marshal(mine)
		require.NoError(t, err)
		require.JSONEq(t, string(a), string(b))
		require.Empty(t, got.Hidden+got.derived)
	})
}

func TestLenient(t *testing.T) {
	t.Parallel()
	type document struct {
		sample `yaml:",inline"`

		Amount *int64 `yaml:"amount"`
		Text   Scalar `yaml:"text"`
	}
	read := func(text string) (document, *Document, []string) {
		var unknown []string
		o := Options{MaxBytes: 1 << 10, Aliases: true, Lenient: true, UnknownField: func(name string, p Problem) { unknown = append(unknown, name+" "+p.String()) }}
		d, err := Parse([]byte(text), o)
		require.NoError(t, err, text)
		var v document
		d.Decode(&v)
		return v, d, unknown
	}
	for text, want := range map[string]document{
		"":                                 {},
		"# nothing":                        {},
		"NAME: a\nTEXT: b":                 {sample: sample{Name: "a"}, Text: "b"},
		"on: yes":                          {sample: sample{On: true}},
		"on: Off":                          {},
		"count: 8.0\namount: 1e3":          {sample: sample{Count: 8}, Amount: new(int64(1000))},
		"name: 2024-01-01":                 {sample: sample{Name: "2024-01-01"}},
		"text: 1_000":                      {Text: "1000"},
		"text: 40.00":                      {Text: "40"},
		"text: \"40.00\"":                  {Text: "40.00"},
		"text: .5":                         {Text: "0.5"},
		"text: 1e3":                        {Text: "1000"},
		"text: .nan":                       {Text: ".nan"},
		"text: Yes":                        {Text: "true"},
		"text: 'Yes'":                      {Text: "Yes"},
		"text: ~":                          {},
		"labels: {<<: {a: b, c: d}, a: x}": {sample: sample{Labels: map[string]string{"a": "x", "c": "d"}}},
		"parts: [&p {share: 1}, {<<: *p}]": {sample: sample{Parts: []inner{{1}, {1}}}},
		"name: a\n---\nname: b\n---\n[":    {sample: sample{Name: "a"}},
	} {
		v, d, unknown := read(text)
		require.NoError(t, d.AllProblems(), text)
		assert.Equal(t, want, v, text)
		assert.Empty(t, unknown, text)
		assert.Equal(t, strings.Contains(text, "---"), len(d.Warnings()) > 0, text)
	}
	_, d, unknown := read("naem: a\nparts:\n- other: 1\n")
	require.NoError(t, d.AllProblems())
	assert.Equal(t, []string{`naem line 1, column 1: naem: unknown field: did you mean "name"?`, "other line 3, column 3: parts[0].other: unknown field: use one of share"}, unknown)
	for text, want := range map[string]string{
		"amount: 1.5":         `line 1, column 9: amount: "1.5" is not a whole number`,
		"amount: 1e30":        "is out of range",
		"on: 7":               `line 1, column 5: on: "7" is neither true nor false`,
		"text: [a]":           "line 1, column 7: text: a list is not a string",
		"labels: {<<: 7}":     "line 1, column 9: labels: it is not YAML: map merge requires map or sequence of maps as the value",
		"labels: &a {<<: *a}": "anchor 'a' value contains itself",
		"parts: [&p {share: 1}, {<<: *p, x: 1}, {<<: {share: a}}]": `line 1, column 53: parts[2].share: "a" is not a number`,
	} {
		_, d, _ := read(text)
		require.ErrorContains(t, d.AllProblems(), want, text)
	}
}
