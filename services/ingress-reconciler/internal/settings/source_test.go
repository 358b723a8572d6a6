package settings

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// text is the state of a ConfigMap's text.
type text[T any] struct {
	value   T
	present bool
	problem string
}

func (t text[T]) Current() (T, bool, string) { return t.value, t.present, t.problem }

func TestSource(t *testing.T) {
	t.Parallel()
	document, inherited := &Document{HoldSeconds: new(int64)}, &Inherited{DisableIngressCreation: true}
	tests := []struct {
		name    string
		config  text[*Document]
		ome     text[*Inherited]
		want    Config
		problem string
	}{
		{
			name: "both are valid", config: text[*Document]{value: document, present: true},
			ome:  text[*Inherited]{value: inherited, present: true},
			want: Config{Document: document, Inherited: inherited, ClusterDomain: "cluster.local"},
		},
		{
			name: "without OME", config: text[*Document]{value: document, present: true},
			want: Config{Document: document, ClusterDomain: "cluster.local"},
		},
		{
			name: "our configuration does not exist", ome: text[*Inherited]{value: inherited, present: true},
			want: Config{Inherited: inherited, ClusterDomain: "cluster.local"}, problem: "ConfigMap fairlead/ingress does not exist",
		},
		{
			name: "our configuration has never been valid", config: text[*Document]{problem: "config: bad"},
			want: Config{ClusterDomain: "cluster.local"}, problem: "config: bad",
		},
		{
			name: "our configuration is invalid now", config: text[*Document]{value: document, present: true, problem: "config: bad"},
			want: Config{Document: document, ClusterDomain: "cluster.local"}, problem: "config: bad",
		},
		{
			name: "OME's configuration has never been valid", config: text[*Document]{value: document, present: true},
			ome: text[*Inherited]{problem: "ome: bad"}, want: Config{ClusterDomain: "cluster.local"}, problem: "ome: bad",
		},
		{
			name: "OME's configuration is invalid now", config: text[*Document]{value: document, present: true},
			ome:  text[*Inherited]{value: inherited, present: true, problem: "ome: bad"},
			want: Config{Document: document, Inherited: inherited, ClusterDomain: "cluster.local"}, problem: "ome: bad",
		},
		{
			name: "both are invalid now", config: text[*Document]{value: document, present: true, problem: "config: bad"},
			ome:  text[*Inherited]{value: inherited, present: true, problem: "ome: bad"},
			want: Config{Document: document, Inherited: inherited, ClusterDomain: "cluster.local"}, problem: "config: bad",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := Source{Document: tt.config, Name: "fairlead/ingress", Inherited: tt.ome, ClusterDomain: "cluster.local"}
			got, problem := s.Current()
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.problem, problem)
		})
	}
}

func TestSourceWithoutConfigMaps(t *testing.T) {
	t.Parallel()
	c, problem := (&Source{Document: text[*Document]{}, Inherited: text[*Inherited]{}, ClusterDomain: "cluster.local"}).Current()
	assert.Equal(t, Config{Document: &Document{}, ClusterDomain: "cluster.local"}, c, "the defaults are in force")
	assert.Empty(t, problem)
}
