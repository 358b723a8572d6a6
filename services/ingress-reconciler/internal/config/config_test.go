package config

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/configmap"
)

// parse parses flags over the defaults.
func parse(t *testing.T, args ...string) (*Config, error) {
	t.Helper()
	c := Default()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.AddFlags(fs)
	return c, fs.Parse(args)
}

func TestDefault(t *testing.T) {
	t.Parallel()
	c, err := parse(t)
	require.NoError(t, err)
	c.Leader.Namespace = "fairlead" // the namespace of the pod, inside a cluster
	require.NoError(t, c.Validate())
	assert.Equal(t,
		Sources{
			OMEConfigMap: configmap.Name{Namespace: "ome", Name: "inferenceservice-config"}, ClusterDomain: "cluster.local",
			Kinds: kinds,
		},
		c.Sources)
	assert.Positive(t, c.Work.Workers)
}

func TestFlags(t *testing.T) {
	t.Parallel()
	c, err := parse(t, "--workers=7", "--max-retry-delay=2m", "--config-map=fairlead/ingress.settings", "--ome-config-map=",
		"--cluster-domain=corp.example", "--kinds=httproutes,services", "--leader-election-namespace=x")
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	assert.Equal(t, 7, c.Work.Workers)
	assert.Equal(t, 2*time.Minute, c.Work.LastRetry)
	assert.Equal(t,
		Sources{
			ConfigMap: configmap.Name{Namespace: "fairlead", Name: "ingress.settings"}, ClusterDomain: "corp.example",
			Kinds: []string{"httproutes", "services"},
		},
		c.Sources)
}

func TestFlagsHaveDescriptions(t *testing.T) {
	t.Parallel()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	Default().AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) { assert.NotEmpty(t, f.Usage, f.Name) })
	assert.Equal(t, "ome/inferenceservice-config", fs.Lookup("ome-config-map").DefValue)
	assert.Equal(t, "namespace/name", fs.Lookup("config-map").Value.Type())
}

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		flags []string
		want  []string
	}{
		{name: "workers", flags: []string{"--workers=0"}, want: []string{"--workers 0 is less than one"}},
		{name: "retries", flags: []string{"--max-retry-delay=999ms"}, want: []string{"--max-retry-delay 999ms is shorter than a second"}},
		{name: "domain", flags: []string{"--cluster-domain=Cluster.Local"}, want: []string{`--cluster-domain "Cluster.Local": `}},
		{name: "no domain", flags: []string{"--cluster-domain="}, want: []string{`--cluster-domain "": `}},
		{
			name: "kind", flags: []string{"--kinds=httproutes,gateways"},
			want: []string{`--kinds: "gateways" is not one of httproutes, ingresses, `},
		},
		{name: "no kind", flags: []string{"--kinds="}, want: []string{"--kinds is empty: name at least one of httproutes, "}},
		{name: "a flag of another package", flags: []string{"--log-level=loud"}, want: []string{"--log-level"}},
		{
			name: "all at once", flags: []string{"--workers=-1", "--cluster-domain=_"},
			want: []string{"--workers -1", `--cluster-domain "_"`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := parse(t, append(tt.flags, "--leader-election-namespace=x")...)
			require.NoError(t, err)
			err = c.Validate()
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}
