package config

import (
	"net/netip"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

// parse parses flags over the defaults.
func parse(t *testing.T, args ...string) (*Config, error) {
	t.Helper()
	c := Default()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.AddFlags(fs)
	return c, fs.Parse(append([]string{"--namespace=fairlead", "--leader-election-namespace=fairlead"}, args...))
}

func TestDefault(t *testing.T) {
	t.Parallel()
	c, err := parse(t)
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	p := c.Policy.PlanPolicy()
	assert.Equal(t, "fairlead", p.Install.Namespace)
	assert.Equal(t, v1alpha1.ProfileTraefik, p.DefaultProfile)
	assert.NotContains(t, p.Exposures, v1alpha1.ExposureHostNetwork, "the network of nodes needs a flag")
	assert.Empty(t, p.ExternalIPRanges, "no external IP is allowed")
	assert.Empty(t, p.BalancerIPRanges, "no address of a load balancer may be chosen")
	assert.Empty(t, p.BalancerClasses, "only the load balancer of the cluster")
	assert.Equal(t, v1alpha1.Profiles(), p.Profiles)
	assert.Contains(t, p.AllowedImages, "docker.io/library/traefik")
	assert.Equal(t, []string{v1alpha1.LabelNodePool}, p.LabelKeys)
	assert.NotEmpty(t, p.Install.Images[v1alpha1.ProfileTraefik])
}

func TestFlags(t *testing.T) {
	t.Parallel()
	c, err := parse(t, "--workers=7", "--max-retry-delay=2m", "--ingress-class-prefix=edge-", "--default-profile=haproxytech",
		"--images=traefik=registry.example/traefik:v1",
		"--allowed-images=registry.example/", "--pool-label-keys=a/b,topology.kubernetes.io/zone", "--allowed-exposures=ClusterIP",
		"--allowed-host-ports=80,8000-8010",
		"--external-ip-ranges=192.0.2.7/24", "--image-pull-secrets=a,b", "--priority-class=high",
		"--allowed-profiles=haproxytech,custom", "--allowed-load-balancer-classes=metallb.io/edge,kube-vip.io/kube-vip-class",
		"--load-balancer-ip-ranges=198.51.100.7/24,2001:db8::/32")
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	assert.Equal(t, 7, c.Work.Workers)
	assert.Equal(t, 2*time.Minute, c.Work.LastRetry)
	p := c.Policy.PlanPolicy()
	assert.Equal(t, "edge-hangzhou", p.ClassName("hangzhou"))
	assert.Equal(t, "registry.example/traefik:v1", p.Install.Images["traefik"])
	assert.NotEmpty(t, p.Install.Images[v1alpha1.ProfileHAProxyTech], "the others keep their images")
	assert.Equal(t, []plan.PortRange{{First: 80, Last: 80}, {First: 8000, Last: 8010}}, p.HostPorts)
	assert.Equal(t, "192.0.2.0/24", p.ExternalIPRanges[0].String())
	assert.Equal(t, []string{"haproxytech", "custom"}, p.Profiles)
	assert.Equal(t, []string{"metallb.io/edge", "kube-vip.io/kube-vip-class"}, p.BalancerClasses)
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/32")}, p.BalancerIPRanges)
	assert.Equal(t, []string{"a", "b"}, p.Install.PullSecrets)
	assert.Equal(t, "high", p.Install.PriorityClass)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--workers=0": "--workers 0", "--discovery-interval=1ms": "--discovery-interval", "--max-retry-delay=1ms": "--max-retry-delay",
		"--namespace=A":            "--namespace",
		"--ingress-class-prefix=_": "--ingress-class-prefix", "--cluster-role-prefix=": "--cluster-role-prefix",
		"--default-profile=x": "--default-profile",
		"--images=x=y":        "--images", "--pool-label-keys=": "--pool-label-keys", "--pool-label-keys=a b": "--pool-label-keys",
		"--allowed-exposures=ExternalIPs": "--allowed-exposures",
		"--allowed-host-ports=0":          "--allowed-host-ports", "--allowed-host-ports=9-8": "--allowed-host-ports",
		"--external-ip-ranges=x": "--external-ip-ranges",
		"--image-pull-secrets=A": "--image-pull-secrets", "--priority-class=A": "--priority-class",
		"--allowed-profiles=x": "--allowed-profiles", "--allowed-profiles=custom": "--default-profile",
		"--allowed-load-balancer-classes=a b": "--allowed-load-balancer-classes",
		"--load-balancer-ip-ranges=10.0.0.1":  "--load-balancer-ip-ranges",
	} {
		c, err := parse(t, flag)
		require.NoError(t, err, flag)
		require.ErrorContains(t, c.Validate(), want, flag)
	}
}
