package pluginconfig

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/internal/scheduling/plugins"
)

const head = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

var options = Options{StaleAfter: 2 * time.Second}

// given is the input of a golden test.
type given struct {
	Config string `json:"config"`
}

// loaded is the output.
type loaded struct {
	Problems []string `json:"problems,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	Compiled []string `json:"compiled,omitempty"`
}

// result describes a configuration or its problems.
func result(c *Config, err error) loaded {
	if err != nil {
		return loaded{Problems: strings.Split(err.Error(), "\n")}
	}
	l := loaded{}
	for _, w := range c.Warnings {
		l.Warnings = append(l.Warnings, w.String())
	}
	show := func(what string, v any) {
		l.Compiled = append(l.Compiled, what+" "+describe(v))
	}
	for _, f := range c.Profile.Servers {
		show("filter", f)
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
	if c.Discovery != nil {
		show("discovery", *c.Discovery)
	}
	show("parsers", c.ParserNames)
	show("headers", c.Headers)
	return l
}

// describe returns the type and the fields of a value. The fields of a plugin have the names of its parameters.
func describe(v any) string {
	value := reflect.Indirect(reflect.ValueOf(v))
	if value.Kind() == reflect.Struct && len(plain(value).(map[string]any)) == 0 {
		return fmt.Sprintf("%s%+v", value.Type().Name(), value) // a plugin without parameters
	}
	text, err := json.Marshal(plain(value))
	if err != nil {
		panic(err)
	}
	return value.Type().Name() + string(text)
}

// plain returns a value in maps, lists and scalars.
func plain(v reflect.Value) any {
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return s.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Slice:
		list := []any{}
		for i := range v.Len() {
			list = append(list, plain(v.Index(i)))
		}
		return list
	case reflect.Struct:
		fields := map[string]any{}
		for _, f := range reflect.VisibleFields(v.Type()) {
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); f.IsExported() && !f.Anonymous && !v.FieldByIndex(f.Index).IsZero() {
				if name == "" {
					name = f.Name
				}
				fields[name] = plain(v.FieldByIndex(f.Index))
			}
		}
		return fields
	default:
		return v.Interface()
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	golden.Run(t, "testdata", func(_ *testing.T, in given) loaded { return result(Load([]byte(in.Config), options)) })
}

func TestDefault(t *testing.T) {
	t.Parallel()
	c := Default(options)
	assert.Equal(t, "default", c.Hash)
	assert.Empty(t, c.Warnings)
	fromText, err := Load([]byte(defaultText), options)
	require.NoError(t, err)
	empty, err := Load([]byte(head), options)
	require.NoError(t, err)
	assert.Equal(t, result(fromText, nil), result(c, nil))
	assert.Equal(t, result(fromText, nil), result(empty, nil), "a configuration without plugins is the default")
}

func TestDefaultExcludesServersThatCannotAnswer(t *testing.T) {
	t.Parallel()
	roles := []string{"", "encode", "prefill", "encode-prefill", "decode", "both", "prefill-decode", "encode-prefill-decode", "my-own"}
	profile := Default(options).Profile
	schedule := func(stale bool, roles ...string) (*scheduling.Candidate, error) {
		var candidates []scheduling.Candidate
		for i, role := range roles {
			s := &scheduling.Server{Labels: map[string]string{plugins.RoleLabel: role}}
			if role == "" {
				s.Labels = nil
			}
			c := scheduling.Candidate{Index: i, Server: s, Load: scheduling.Load{Wait: 1}}
			if excluded := strings.HasPrefix(role, "encode") || role == "prefill"; excluded && !strings.Contains(role, "decode") {
				c.Load.Wait = 0.1 // the best by load
			} else if stale {
				c.Load.Failing = 1 // long ago
			}
			if profile.Eligible(s) {
				candidates = append(candidates, c)
			}
		}
		return profile.Schedule(&scheduling.Request{Now: time.Unix(1000, 0), Random: 7}, candidates, &scheduling.Scratch{})
	}
	for _, role := range roles {
		chosen, err := schedule(false, "encode", "prefill", role)
		switch role {
		case "encode", "prefill", "encode-prefill":
			require.ErrorIs(t, err, scheduling.ErrNoEndpoints, role)
		default:
			require.NoError(t, err, role)
			assert.Equal(t, 2, chosen.Index, role)
		}
	}
	chosen, err := schedule(true, "encode", "decode")
	require.NoError(t, err)
	assert.Equal(t, 1, chosen.Index, "a server whose metrics fail is better than one that cannot answer")
}

func TestLoadHashesTheText(t *testing.T) {
	t.Parallel()
	one, err := Load([]byte(defaultText), options)
	require.NoError(t, err)
	two, err := Load([]byte(defaultText+"# a comment\n"), options)
	require.NoError(t, err)
	assert.Len(t, one.Hash, 12)
	assert.NotEqual(t, one.Hash, two.Hash)
	assert.Equal(t, result(one, nil), result(two, nil))
}

func TestLoadRefusesOtherTexts(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "nothing", give: "", want: "it is empty: for the defaults, configure no text"},
		{name: "comments", give: "# nothing\n", want: "it is empty: for the defaults, configure no text"},
		{name: "not YAML", give: "apiVersion: [a\nkind: b", want: "line 1, column 1: it is not YAML: did not find expected ',' or ']'"},
		{name: "a tab", give: "a:\n\t- b", want: "line 2, column 1: it is not YAML: found character that cannot start any token"},
		{name: "two documents", give: defaultText + "---\n" + defaultText, want: "line 14, column 1: there is more than one document: keep one"},
		{name: "a list", give: "- a", want: "line 1, column 1: a list has no fields\nline 1, column 1: apiVersion: it is missing: give llm-d.ai/v1\nline 1, column 1: kind: \"\" is not EndpointPickerConfig"},
		{name: "aliases", give: "apiVersion: &a [x]\nkind: *a", want: "line 1, column 13: anchors and aliases are not supported: write the value out\nline 2, column 7: anchors and aliases are not supported: write the value out"},
		{name: "too large", give: strings.Repeat("#", MaxBytes+1), want: "it has 1048577 bytes: the maximum is 1048576"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load([]byte(tt.give), options)
			require.EqualError(t, err, tt.want)
			var problems strictyaml.TextError
			require.ErrorAs(t, err, &problems)
		})
	}
}

// TestEveryTypeOfUpstreamIsKnown checks that each type of upstream's plugins is accepted, ignored with a warning, or refused
// with a line that says what to do.
func TestEveryTypeOfUpstreamIsKnown(t *testing.T) {
	t.Parallel()
	for _, name := range plugins.Names() {
		text := fmt.Sprintf("%splugins:\n- type: %s\n  parameters: {anything: 1}\n", head, name)
		config, err := Load([]byte(text), options)
		advice, refused := plugins.Replacement(name)
		reason, ignored := plugins.Unneeded(name)
		switch {
		case refused:
			require.EqualError(t, err, fmt.Sprintf("line 4, column 9: plugins[0].type: this picker has no %s: %s", name, advice))
		case ignored:
			require.NoError(t, err, name)
			require.Len(t, config.Warnings, 1)
			require.Equal(t, fmt.Sprintf("line 4, column 9: plugins[0].type: %s is not needed: %s: leave it out", name, reason),
				config.Warnings[0].String())
		default:
			require.ErrorContains(t, err, "plugins[0].parameters.anything: unknown field", name)
		}
	}
}

func load(t *testing.T, text string, o Options) *Config {
	t.Helper()
	c, err := Load([]byte(head+text), o)
	require.NoError(t, err)
	return c
}

const sessions = "plugins: [{type: session-affinity-filter, parameters: {strategy: session_id}}, {type: %s}]"

func TestReloadKeepsSessions(t *testing.T) {
	t.Parallel()
	first := load(t, fmt.Sprintf(sessions, "queue-scorer"), options)
	o := options
	o.Previous = first
	second := load(t, fmt.Sprintf(sessions, "load-aware-scorer"), o)
	assert.Same(t, first.Sessions, second.Sessions)
	assert.Equal(t, first.Profile.Binders, second.Profile.Binders)
	assert.NotEqual(t, first.Profile.Scorers, second.Profile.Scorers)
	third := load(t, strings.Replace(fmt.Sprintf(sessions, "queue-scorer"), "session_id", "encoded_endpoint_header", 1), o)
	assert.NotSame(t, first.Sessions, third.Sessions)
}

func TestDiscoveryNeedsARestart(t *testing.T) {
	t.Parallel()
	const discovery = "plugins: [{type: file-discovery, parameters: {path: %s}}]\ndataLayer: {discovery: {pluginRef: file-discovery}}"
	first := load(t, fmt.Sprintf(discovery, "/a"), options)
	o := options
	o.Previous = first
	load(t, fmt.Sprintf(discovery, "/a")+"\nfeatureGates: []", o)
	const want = "dataLayer.discovery: the source of endpoints cannot change while the picker runs: undo the change, or restart the picker"
	_, err := Load([]byte(head+fmt.Sprintf(discovery, "/b")), o)
	require.EqualError(t, err, "line 4, column 24: "+want)
	_, err = Load([]byte(head), o)
	require.EqualError(t, err, "line 1, column 1: "+want)

	o.EndpointsGiven = true
	changed := load(t, fmt.Sprintf(discovery, "/b"), o)
	require.Len(t, changed.Warnings, 1)
	assert.Equal(t, "line 4, column 24: dataLayer.discovery: it has no effect: the flags name the endpoints", changed.Warnings[0].String())
}

// FuzzLoad checks that any text is accepted or refused with a reason, that the result is always the same, and that an accepted
// configuration can schedule.
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
		config, err := Load([]byte(text), options)
		again, secondErr := Load([]byte(text), options)
		require.Equal(t, result(config, err), result(again, secondErr))
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NoError(t, config.Scraping.Validate(), "what is accepted can be scraped")
		r := &scheduling.Request{Now: time.Unix(0, 0)}
		_, _ = config.Profile.Schedule(r, []scheduling.Candidate{{Server: &scheduling.Server{}}}, &scheduling.Scratch{})
		for _, b := range config.Profile.Binders {
			b.Bind(r, &scheduling.Server{})
		}
		require.Positive(t, config.Saturation.Saturation(r.Now, nil))
	})
}
