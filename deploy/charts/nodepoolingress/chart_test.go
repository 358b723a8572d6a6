// Package nodepoolingress_test checks what only charts/nodepool-ingress has: flags of pools, the roles of ingress controllers, what its
// schema refuses, its notes, that its alerts fire, and that its documents keep up with the program. Package family_test
// checks what all charts have in common.
package nodepoolingress_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

const program = "nodepool-ingress"

var (
	repository = helm.Repository()
	chart      = filepath.Join(repository, "charts", program)
)

// planFlags are the first arguments of the container: those before the election of a leader.
func planFlags(args []string) []string {
	for i, arg := range args {
		if strings.HasPrefix(arg, "--leader-elect=") {
			return args[:i]
		}
	}
	return nil
}

func TestFlags(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, nil)
	assert.Equal(t, []string{
		"--namespace=system", "--cluster-role-prefix=system:release-nodepool-ingress", "--pool-label-keys=apps.openyurt.io/nodepool", "--default-profile=traefik", "--allowed-profiles=traefik",
		"--allowed-exposures=NodePort,LoadBalancer,HostPort,ClusterIP", "--cache-image=ghcr.io/fairlead/edge-cache:v0.1.0",
	}, planFlags(objects.Container(t, set).Args))
	set = objects.Render(t, chart, helm.Values{
		"exposures": helm.Values{"allowed": []string{"ExternalIPs", "HostPort", "LoadBalancer"}, "loadBalancerClasses": []string{"metallb.io/edge"}, "loadBalancerIPRanges": []string{"198.51.100.0/24"}, "externalIPRanges": []string{"192.0.2.0/24", "2001:db8::/32"}, "hostPorts": []any{80, "8000-8099"}},
		"cache":     helm.Values{"image": helm.Values{"registry": "", "repository": "fairlead/edge-cache", "tag": "dev"}, "upstreamServer": "https://192.0.2.1:6443"},
		"profiles":  helm.Values{"images": helm.Values{"traefik": "registry.example/traefik:v3"}, "allowedImages": []string{"registry.example/mirror/"}},
	})
	assert.Subset(t, objects.Container(t, set).Args, []string{
		"--allowed-exposures=HostPort,LoadBalancer", "--allowed-load-balancer-classes=metallb.io/edge", "--load-balancer-ip-ranges=198.51.100.0/24", "--external-ip-ranges=192.0.2.0/24,2001:db8::/32", "--allowed-host-ports=80,8000-8099", "--cache-image=fairlead/edge-cache:dev",
		"--cache-upstream-server=https://192.0.2.1:6443", "--images=traefik=registry.example/traefik:v3", "--allowed-images=registry.example/mirror/",
	})
}

func TestNotes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give helm.Values
		want string
		warn string // empty: no warning
	}{
		{name: "default", want: "plan --namespace=system --cluster-role-prefix=system:release-nodepool-ingress"},
		{name: "label of another node manager", give: helm.Values{"poolLabelKeys": []string{"topology.kubernetes.io/zone"}}, want: "kubectl label node NODE topology.kubernetes.io/zone=hangzhou"},
		{name: "several that write", give: helm.Values{"leaderElection": helm.Values{"enabled": false}}, want: "plan", warn: "2 replicas without leader election"},
		{name: "network of nodes", give: helm.Values{"exposures": helm.Values{"allowed": []string{"HostNetwork"}}}, want: "plan", warn: "in the network of nodes"},
		{
			name: "external addresses", give: helm.Values{"exposures": helm.Values{"allowed": []string{"ExternalIPs"}, "externalIPRanges": []string{"192.0.2.0/24"}}},
			want: "plan", warn: "receive the traffic of the cluster",
		},
		{name: "addresses of load balancers", give: helm.Values{"exposures": helm.Values{"loadBalancerIPRanges": []string{"198.51.100.0/24"}}}, want: "plan", warn: "announce these addresses"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			notes, err := helm.Notes(chart, tt.give)
			require.NoError(t, err)
			assert.Contains(t, notes, tt.want)
			if tt.warn == "" {
				assert.NotContains(t, notes, "WARNING")
				return
			}
			assert.Contains(t, notes, "WARNING: ")
			assert.Contains(t, notes, tt.warn)
		})
	}
}
