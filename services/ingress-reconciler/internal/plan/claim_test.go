package plan

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

func TestClaimsAreText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Claim{
		"chat.example.com/":                      {Host: "chat.example.com", Path: "/"},
		"llm.example.com/models/chat/":           {Host: "llm.example.com", Path: "/models/chat/"},
		"llm.example.com/ X-Gateway-Model=a=b/c": {Host: "llm.example.com", Path: "/", Model: Model{Header: "X-Gateway-Model", Name: "a=b/c"}},
	} {
		assert.Equal(t, text, want.String())
		got, ok := ParseClaim(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{"", "/", "chat.example.com", "/path/", "chat.example.com/path", "chat.example.com/ ", "chat.example.com/ X=", "chat.example.com/ =a"} {
		_, ok := ParseClaim(text)
		assert.False(t, ok, text)
	}
}

func FuzzParseClaim(f *testing.F) {
	for _, seed := range []string{"chat.example.com/", "llm.example.com/a/ X=b", "a/ b", " /"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := ParseClaim(text); ok {
			require.Equal(t, text, c.String())
		}
	})
}

func TestWhatIsKeptKeepsItsClaims(t *testing.T) {
	t.Parallel()
	here, beside := Claim{Host: "here.example.com", Path: "/"}, Claim{Host: "beside.example.com", Path: "/"}
	next := Claim{Host: "chat.models.example.com", Path: "/"}
	serving := map[Slot][]Claim{Entry: {here}, Slot(isvc.Engine): {beside}}
	broken := errors.New("domainTemplate: broken")
	tests := []struct {
		name   string
		change func(in *Input)
		want   []Claim
	}{
		{name: "what is known is all", change: func(*Input) {}, want: []Claim{next}},
		{name: "nothing is known", change: func(in *Input) { in.SettingsErr = broken }, want: []Claim{here, beside}},
		{name: "it is being deleted", change: func(in *Input) { in.Service.Deleting = true }, want: []Claim{here, beside}},
		{name: "its backend has gone, and the host is another", change: func(in *Input) { in.Services = nil }, want: []Claim{next, here}},
		{name: "nothing is to be exposed", change: func(in *Input) { in.Settings.Enabled = false }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := input(t, example, isvc.Engine)
			in.Serving = serving
			tt.change(in)
			assert.Equal(t, tt.want, build(t, in).Claims)
		})
	}
	t.Run("unless an older service has them", func(t *testing.T) {
		t.Parallel()
		in := input(t, example, isvc.Engine)
		in.Serving, in.SettingsErr, in.Taken = serving, broken, map[Claim]Name{here: {Namespace: "models", Name: "old"}}
		got := build(t, in)
		assert.Equal(t, []string{"InvalidConfiguration", "HostConflict"}, reasons(got))
		assert.Equal(t, "here.example.com/ is that of models/old, which is older", got.Reasons[1].Message)
	})
}
