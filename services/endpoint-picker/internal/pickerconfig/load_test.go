package pickerconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/depcheck"
	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

var options = Options{StaleAfter: 2 * time.Second}

func TestPurity(t *testing.T) {
	t.Parallel()
	depcheck.AssertNoDependency(t, ".",
		"k8s.io/client-go/...", "go.uber.org/zap/...", "go.uber.org/dig/...", "google.golang.org/grpc/...",
		"github.com/prometheus/client_golang/...", "fairlead.dev/pkg/...")
}

// given is the input of a golden test.
type given struct {
	Config string `json:"config"`
}

// loaded is what became of it.
type loaded struct {
	Problems []string `json:"problems,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Compiled []string `json:"compiled,omitempty"`
	Summary  string   `json:"summary,omitempty"`
}

func see(c *Config, err error) loaded {
	if err != nil {
		return loaded{Problems: strings.Split(err.Error(), "\n")}
	}
	l := loaded{Summary: string(c.Summary())}
	for _, w := range c.Warnings {
		l.Warnings = append(l.Warnings, w.String())
	}
	show := func(what string, v any) {
		l.Compiled = append(l.Compiled, what+" "+strings.TrimPrefix(fmt.Sprintf("%T%+v", v, v), "scheduling."))
	}
	for _, f := range c.Profile.Filters {
		show("filter", f)
	}
	for _, w := range c.Profile.Scorers {
		show(fmt.Sprintf("scorer %s, weight %v,", w.Name, w.Weight), w.Scorer)
	}
	show("picker", c.Profile.Picker)
	show("saturation", c.Saturation)
	show("prefix", c.Prefix)
	show("scraping", c.Scraping)
	if c.Session != nil {
		show("session", *c.Session)
	}
	if c.Discovery != nil {
		show("discovery", *c.Discovery)
	}
	show("parsers", summarizedParsers(c))
	show("headers", c.Headers)
	return l
}

// summarizedParsers returns the types of the parsers in the summary.
func summarizedParsers(c *Config) []string {
	var summary struct {
		Plugins        []struct{ Name, Type string }
		RequestHandler struct{ Parsers []struct{ PluginRef string } }
	}
	if err := yaml.Unmarshal(c.Summary(), &summary); err != nil {
		return []string{err.Error()}
	}
	types := map[string]string{}
	for _, p := range summary.Plugins {
		types[p.Name] = p.Type
	}
	var parsers []string
	for _, p := range summary.RequestHandler.Parsers {
		parsers = append(parsers, types[p.PluginRef])
	}
	return parsers
}

func TestLoad(t *testing.T) {
	t.Parallel()
	golden.Run(t, "testdata", func(t *testing.T, in given) loaded {
		made, err := Load([]byte(in.Config), options)
		if err == nil {
			assertSummary(t, made)
		}
		return see(made, err)
	})
}

// assertSummary checks that the summary is a configuration that means the same.
func assertSummary(t *testing.T, c *Config) {
	t.Helper()
	again, err := Load(c.Summary(), options)
	require.NoError(t, err, "%s", c.Summary())
	require.Equal(t, string(c.Summary()), string(again.Summary()))
	before, after := see(c, nil), see(again, nil)
	require.Equal(t, before.Compiled, after.Compiled)
}

func TestDefault(t *testing.T) {
	t.Parallel()
	c := Default(options)
	assert.Equal(t, &scheduling.Profile{
		Filters: []scheduling.Filter{scheduling.StalenessFilter{After: 2 * time.Second}},
		Scorers: []scheduling.WeightedScorer{{Name: "predicted-wait-scorer", Scorer: scheduling.PredictedWaitScorer{}, Weight: 1}},
		Picker:  scheduling.MaxScorePicker{Most: 1},
	}, c.Profile)
	assert.Equal(t, "default", c.Hash)
	assert.Empty(t, c.Warnings)
	assertSummary(t, c)
}

func TestLoadTellsTextsApart(t *testing.T) {
	t.Parallel()
	one, err := Load([]byte(defaultText), options)
	require.NoError(t, err)
	two, err := Load([]byte(defaultText+"# a comment\n"), options)
	require.NoError(t, err)
	assert.Len(t, one.Hash, 12)
	assert.NotEqual(t, one.Hash, two.Hash)
	assert.Equal(t, one.Summary(), two.Summary())
	one.Summary()[0] = 'x'
	assert.Equal(t, one.Summary(), two.Summary(), "it is a copy")
}

func TestLoadRefusesTextsThatAreNone(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "nothing", give: "", want: "it is empty: for the defaults, configure no text"},
		{name: "comments", give: "# nothing\n", want: "it is empty: for the defaults, configure no text"},
		{name: "no YAML", give: "apiVersion: [a\nkind: b", want: "line 1, column 1: it is not YAML: did not find expected ',' or ']'"},
		{name: "a tab", give: "a:\n\t- b", want: "line 2, column 1: it is not YAML: found character that cannot start any token"},
		{name: "two documents", give: defaultText + "---\n" + defaultText, want: "line 9, column 1: there is more than one document: keep one"},
		{name: "a list", give: "- a", want: "line 1, column 1: a list has no fields\nline 1, column 1: apiVersion: it is missing: give llm-d.ai/v1alpha1\nline 1, column 1: kind: \"\" is not EndpointPickerConfig"},
		{name: "aliases", give: "apiVersion: &a [x]\nkind: *a", want: "line 1, column 13: anchors and aliases are not supported: write the value out\nline 2, column 7: anchors and aliases are not supported: write the value out"},
		{name: "too large", give: strings.Repeat("#", maxText+1), want: "it has 1048577 bytes: the maximum is 1048576"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load([]byte(tt.give), options)
			require.EqualError(t, err, tt.want)
			var problems LoadError
			require.ErrorAs(t, err, &problems)
		})
	}
}

// TestEveryTypeIsTakenOrRefused checks that of each plugin of upstream something is known, and that the answer is a line
// that says what to do.
func TestEveryTypeIsTakenOrRefused(t *testing.T) {
	t.Parallel()
	for kind := range kinds(options) {
		_, both := rejected[kind]
		assert.False(t, both, kind)
	}
	for kind, instead := range rejected {
		text := fmt.Sprintf("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: %s\n  parameters: {anything: 1}\n", kind)
		_, err := Load([]byte(text), options)
		require.EqualError(t, err, fmt.Sprintf("line 4, column 9: plugins[0].type: this picker has no %s: %s", kind, instead))
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"queue-scorer", "random-picker", "type"}
	for give, want := range map[string]string{
		"queue-score": "queue-scorer", "Queue-Scorer": "queue-scorer", "quee-scorre": "queue-scorer", "typ": "type", "tpye": "type",
		"randompicker": "random-picker", "x": "", "": "", "something-else": "",
	} {
		assert.Equal(t, want, nearest(give, names), give)
	}
}

// FuzzLoad checks that any text is taken or refused with a reason, and that what is taken is taken again as it was
// understood.
func FuzzLoad(f *testing.F) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	require.NoError(f, err)
	for _, input := range inputs {
		text, err := os.ReadFile(input)
		require.NoError(f, err)
		var in given
		require.NoError(f, yaml.UnmarshalStrict(text, &in))
		f.Add(in.Config)
	}
	f.Fuzz(func(t *testing.T, text string) {
		made, err := Load([]byte(text), options)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		assertSummary(t, made)
		r := &scheduling.Request{Now: time.Unix(0, 0)}
		_, _ = made.Profile.Schedule(r, []scheduling.Candidate{{Server: &scheduling.Server{}}}, &scheduling.Scratch{})
		require.Positive(t, made.Saturation.Saturation(r, nil))
	})
}
