package hostname

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var values = Values{
	Name: "chat", Namespace: "models", IngressDomain: "example.com",
	Annotations: map[string]string{"team": "blue"}, Labels: map[string]string{"tier": "gold", "app.kubernetes.io/name": "llm"},
}

func TestHost(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 60)
	tests := []struct {
		name, give string
		values     Values
		want       string
		fails      string // a part of the error
	}{
		{name: "OME's", give: "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}", want: "chat.models.example.com"},
		{name: "KServe's", give: "{{ .Name }}-{{ .Namespace }}.{{ .IngressDomain }}", want: "chat-models.example.com"},
		{name: "without blanks", give: "{{.Name}}.{{.IngressDomain}}", want: "chat.example.com"},
		{name: "a constant", give: "llm.example.com", want: "llm.example.com"},
		{
			name: "labels and annotations", give: "{{ .Name }}.{{ .Labels.tier }}.{{ .Annotations.team }}.example.com",
			want: "chat.gold.blue.example.com",
		},
		{name: "index", give: `{{ index .Labels "app.kubernetes.io/name" }}.example.com`, want: "llm.example.com"},
		{name: "printf", give: `{{ printf "%s-%s" .Name .Namespace }}.example.com`, want: "chat-models.example.com"},
		{
			name: "if", give: `{{ if eq .Namespace "models" }}{{ .Name }}{{ else }}{{ .Name }}.{{ .Namespace }}{{ end }}.example.com`,
			want: "chat.example.com",
		},
		{name: "comment", give: `{{/* a host */}}{{ .Name }}.example.com`, want: "chat.example.com"},
		{name: "a missing label", give: "{{ .Labels.absent }}.example.com", fails: `map has no entry for key "absent"`},
		{name: "a missing label, by index", give: `{{ index .Labels "absent" }}.example.com`, fails: `host ".example.com"`},
		{name: "no such field", give: "{{ .Title }}.example.com", fails: "can't evaluate field Title"},
		{name: "upper case", give: "Chat.example.com", fails: `host "Chat.example.com": a lowercase RFC 1123 subdomain`},
		{name: "wildcard", give: "*.example.com", fails: `host "*.example.com"`},
		{name: "no domain", give: "{{ .Name }}", fails: `host "chat" has no domain`},
		{name: "a port", give: "{{ .Name }}.example.com:8080", fails: "host"},
		{
			name: "a label too long", give: "{{ .Name }}-{{ .Namespace }}.example.com", values: Values{Name: long, Namespace: "models"},
			fails: `has 67 characters, more than 63`,
		},
		{
			name: "a name too long", give: strings.Repeat("{{ .Name }}.", 5) + "com", values: Values{Name: long},
			fails: "must be no more than 253",
		},
		{
			name: "output that is too long", give: strings.Repeat("{{ .Name }}", 50), values: Values{Name: long},
			fails: "output exceeds 1024 bytes",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			parsed, err := Parse(tt.give)
			require.NoError(t, err)
			if tt.values.Name == "" {
				tt.values = values
			}
			got, err := parsed.RenderHost(tt.values)
			if tt.fails != "" {
				require.ErrorContains(t, err, tt.fails)
				assert.Less(t, len(err.Error()), 600, "the error message is short")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{"nothing", "", "template is empty"},
		{"blanks", " \n", "template is empty"},
		{"a length", strings.Repeat("a", 1025), "template has 1025 bytes, more than 1024"},
		{"an open brace", "{{ .Name", "unclosed action"},
		{"a width", `{{ printf "%99999999d" 1 }}`, "the first argument of printf must be a string with no verbs but %s, %d and %v"},
		{"a width by an argument", `{{ printf "%*d" 99999999 1 }}`, "the first argument of printf must be a string"},
		{"a format from outside", `{{ printf .Annotations.format 1 }}`, "the first argument of printf must be a string"},
		{"printf of nothing", `{{ printf }}`, "the first argument of printf must be a string"},
		{"a loop", "{{ range .Labels }}a{{ end }}", "{{range .Labels}}a{{end}} is not allowed"},
		{"a loop of numbers", "{{ range 1000000000 }}a{{ end }}", "is not allowed"},
		{"with", "{{ with .Labels }}a{{ end }}", "is not allowed"},
		{"a variable", "{{ $x := .Name }}a", "variable $x is not allowed"},
		{"a pipe", `{{ .Name | printf "%s" }}`, "is not allowed"},
		{"a template", `{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`, "nested templates are not allowed"},
		{"a template that is the same", `{{ template "host" }}`, "is not allowed"},
		{"another function", "{{ html .Name }}", "function html is not allowed: use one of and, or, not, eq, ne, index, print, printf"},
		{"a function that is none", "{{ env .Name }}", `function "env" not defined`},
		{"all values", "{{ . }}", ". is not allowed"},
		{"within if", "{{ if .Name }}{{ range .Labels }}a{{ end }}{{ end }}", "is not allowed"},
		{"within else", "{{ if .Name }}a{{ else }}{{ html .Name }}{{ end }}", "function html is not allowed"},
		{"in brackets", "{{ print (html .Name) }}", "function html is not allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(tt.give)
			assert.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzHost(f *testing.F) {
	for _, seed := range []string{
		"{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}", `{{ printf "%s" .Name }}.com`, "{{ if .Labels.a }}a{{ end }}.b",
		`{{ index .Labels "a" }}.b.c`, "{{ (print 1) }}", "{{ .Name.Name }}", `{{ eq 1 "a" }}`, "{{ index .Name 1000 }}", "{{ and }}",
	} {
		f.Add(seed, "chat", "value")
	}
	f.Fuzz(func(t *testing.T, text, name, label string) {
		parsed, err := Parse(text)
		if err != nil {
			return
		}
		host, err := parsed.RenderHost(Values{
			Name: name, Namespace: "models", IngressDomain: "example.com", Labels: map[string]string{"a": label},
		})
		if err == nil {
			require.NoError(t, Validate(host))
			assert.LessOrEqual(t, len(host), 253)
		}
	})
}
