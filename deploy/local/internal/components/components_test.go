package components

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// controlPlane is what is started, for golden files.
type controlPlane struct {
	Order []string            `json:"order"`
	Args  map[string][]string `json:"args"`
}

func TestArgs(t *testing.T) {
	t.Parallel()
	golden.Run(t, "testdata/args", func(t *testing.T, c clusterapi.Config) controlPlane {
		require.NoError(t, c.Complete())
		p := controlPlane{Order: Control(&c), Args: map[string][]string{}}
		for _, name := range p.Order {
			p.Args[name] = Args(&c, name)
		}
		return p
	})
}

func TestArgs_LeavesTheConfigurationAlone(t *testing.T) {
	t.Parallel()
	further := make([]string, 1, 10) // with room, so that an append to it would show
	further[0] = "--v=4"
	c := clusterapi.Config{Dir: "/state", Images: "/images", Args: map[string][]string{clusterapi.Etcd: further, clusterapi.Scheduler: further}}
	require.NoError(t, c.Complete())
	before := maps.Clone(c.Args)
	for _, name := range Control(&c) {
		_ = append(Args(&c, name), "--spoiled")
	}
	assert.Equal(t, before, c.Args)
	assert.Equal(t, "--v=4", further[0])
	assert.Equal(t, slices.Repeat([]string{""}, 9), further[1:10])
}

func TestSnapshotAndRestore_TalkToTheEtcdThatIsStarted(t *testing.T) {
	t.Parallel()
	c := clusterapi.Config{Dir: "/state", Images: "/images"}
	require.NoError(t, c.Complete())
	flags := Args(&c, clusterapi.Etcd)
	assert.Equal(t, []string{"etcd-snapshot", "--endpoint=http://127.0.0.1:2379", "--file=/tmp/a.db"}, Snapshot("/tmp/a.db"))
	assert.Contains(t, flags, "--listen-client-urls=http://127.0.0.1:2379")
	assert.Equal(t, []string{"etcd-restore", "--file=/tmp/a.db", "--data-dir=/state/etcd.restored", "--peer-url=http://127.0.0.1:2380"},
		Restore("/tmp/a.db", EtcdDir(c.Dir)+".restored"))
	assert.Contains(t, flags, "--listen-peer-urls=http://127.0.0.1:2380")
}

func TestAuditPolicyText_RecordsEveryRequestOnce(t *testing.T) {
	t.Parallel()
	p := golden.Decode[auditv1.Policy](t, []byte(AuditPolicyText))
	assert.Equal(t, auditv1.SchemeGroupVersion.String(), p.APIVersion)
	assert.Equal(t, "Policy", p.Kind)
	assert.Equal(t, []auditv1.Stage{auditv1.StageRequestReceived}, p.OmitStages)
	assert.Equal(t, []auditv1.PolicyRule{{Level: auditv1.LevelMetadata}}, p.Rules, "one rule, without a condition")
}

func TestKubeProxy_LeavesTheMachineAloneAndTakesFurtherFlagsLast(t *testing.T) {
	t.Parallel()
	c := clusterapi.Config{Dir: "/state", Images: "/images", Args: map[string][]string{clusterapi.KubeProxy: {"--v=4"}}}
	require.NoError(t, c.Complete())
	flags := KubeProxy(&c, 2, "gpu")
	for _, want := range []string{"--proxy-mode=nftables", "--hostname-override=gpu", "--cluster-cidr=10.244.0.0/16", "--kubeconfig=/state/pki/node-proxy.kubeconfig",
		"--conntrack-max-per-core=0", "--metrics-bind-address=10.200.0.12:10249"} {
		assert.Contains(t, flags, want)
	}
	assert.Equal(t, "--v=4", flags[len(flags)-1])
}
