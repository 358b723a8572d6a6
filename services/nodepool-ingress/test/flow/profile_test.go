//go:build system

package flow

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/services/nodepool-ingress/internal/commands"
	"fairlead.dev/services/nodepool-ingress/internal/config"
)

const (
	chart      = "../../../../charts/nodepool-ingress"
	rolePrefix = "fairlead:nodepool-ingress" // as the chart has it
)

// chartObjects applies a template of the chart with all profiles.
func (r *rig) chartObjects(template string) {
	r.t.Helper()
	out, err := r.cluster.Helm(r.t.Context(), "template", "nodepool-ingress", chart, "--namespace="+namespace, "--show-only="+template,
		"--set=profiles.enabled={"+strings.Join(v1alpha1.Profiles(), ",")+"}")
	require.NoError(r.t, err)
	r.apply(out)
	file := filepath.Join(r.t.TempDir(), "chart.yaml")
	require.NoError(r.t, os.WriteFile(file, []byte(out), 0o600))
	r.t.Cleanup(func() {
		_, err := r.cluster.Kubectl(context.Background(), "delete", "--ignore-not-found", "-f", file)
		assert.NoError(r.t, err)
	})
}

// TestProfiles installs one pool with each built-in profile, one after the other, and lets an API server check what the subcommand plan
// prints. The class and the arguments change together, and each role is one of the chart.
func TestProfiles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("hangzhou")
	r.deploy()
	r.chartObjects("templates/rbac.yaml")
	flags := []string{"--cluster-role-prefix=" + rolePrefix, "--cache-image=registry.example/edge-cache:v1"}
	stop := r.start(func(c *config.Config) {
		c.Policy.Install.ClusterRolePrefix, c.Policy.Install.CacheImage = rolePrefix, "registry.example/edge-cache:v1"
	})
	y := r.create("edge", "{pools: [{name: hangzhou}], cacheSidecar: {enabled: true}}")
	controllers := map[string]bool{}
	for _, profile := range v1alpha1.Profiles() {
		if profile == v1alpha1.ProfileCustom {
			continue // TestCustom of the whole-system tests runs one
		}
		r.patch("edge", `{"spec": {"profile": "`+profile+`"}}`)
		r.eventually(func() (string, bool) {
			s := r.get("edge").Status
			return s.Profile + r.condition("edge", "hangzhou", conditionR), s.Profile == profile && s.ReadyNum == 1
		}, "profile %s", profile)
		r.settled("edge")
		owned := r.owned(y.UID, "hangzhou")
		controller := owned["IngressClass/hangzhou"].Object["spec"].(map[string]any)["controller"].(string)
		assert.False(t, controllers[controller], controller)
		controllers[controller] = true
		for key, u := range owned {
			if ref, found := u.Object["roleRef"].(map[string]any); found {
				_, err := r.kube.RbacV1().ClusterRoles().Get(t.Context(), ref["name"].(string), metav1.GetOptions{})
				require.NoError(t, err, key)
			}
		}
		var out, log bytes.Buffer
		cmd := commands.New(&out, &log)
		cmd.SetArgs(append([]string{"plan", "--namespace=" + namespace, "--kubeconfig=" + r.cluster.Kubeconfig}, flags...))
		require.NoError(t, cmd.ExecuteContext(t.Context()), "%s: plan finds no difference: %s", profile, &log)
		file := filepath.Join(t.TempDir(), "objects.yaml")
		require.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
		applied, err := r.cluster.Kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "--dry-run=server",
			"--validate=strict", "--warnings-as-errors", "-f", file)
		require.NoError(t, err, profile)
		assert.Equal(t, len(owned), strings.Count(applied, "serverside-applied"), profile)
	}

	stop()
	// A profile that the administrator has not enabled changes nothing: its roles are missing, and the pool serves on.
	t.Run("not enabled", func(t *testing.T) {
		r := &rig{t: t, cluster: r.cluster, client: r.client, kube: r.kube}
		r.pools("beijing")
		r.start(func(c *config.Config) {
			c.Policy.Profiles, c.Policy.ClassPrefix = []string{v1alpha1.ProfileTraefik}, "own-"
		})
		y := r.create("own", "{pools: [{name: beijing}]}")
		r.await("own", "beijing", conditionR, ready)
		before := r.versionsOf(y)
		r.patch("own", `{"spec": {"profile": "haproxytech"}}`)
		r.await("own", "beijing", v1alpha1.ConditionAccepted, "False NotAllowed")
		assert.Equal(t, before, r.versionsOf(y))
		require.ErrorIs(t, r.plan("--allowed-profiles=traefik,haproxytech", "--ingress-class-prefix=own-"), dryrun.ErrDiffers)
	})
}

func (r *rig) versionsOf(y *v1alpha1.YurtIngress) map[string]string {
	versions := map[string]string{}
	for key, u := range r.owned(y.UID, "") {
		versions[key] = u.GetResourceVersion()
	}
	return versions
}

// TestLeases lets the ServiceAccounts of pools write Leases, with the roles and the policy of the chart. Each has the Lease that its
// controller is told to use, and neither that of the program nor that of another pool.
func TestLeases(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pools("hangzhou", "eu.pool")
	r.deploy()
	r.chartObjects("templates/rbac.yaml")
	r.chartObjects("templates/leases.yaml")
	r.start(func(c *config.Config) { c.Policy.Install.ClusterRolePrefix = rolePrefix })
	lock := func(pool string) (account, lease string) {
		d := r.deployment(pool)
		require.NotNil(t, d, pool)
		for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
			for _, flag := range []string{"--election-id=", "-leader-election-lock-name="} {
				if name, found := strings.CutPrefix(arg, flag); found {
					lease = strings.ReplaceAll(name, "%s", pool)
				}
			}
		}
		require.NotEmpty(t, lease)
		return d.Spec.Template.Spec.ServiceAccountName, lease
	}
	r.create("edge", "{pools: [{name: hangzhou}, {name: eu.pool}]}")
	for _, profile := range []string{v1alpha1.ProfileF5NGINX, v1alpha1.ProfileHAProxyIngress, v1alpha1.ProfileIngressNGINX} {
		r.patch("edge", `{"spec": {"profile": "`+profile+`"}}`)
		r.eventually(func() (string, bool) {
			s := r.get("edge").Status
			return s.Profile, s.Profile == profile && s.ReadyNum == 2
		}, "profile %s", profile)
		account, own := lock("hangzhou")
		other, othersLease := lock("eu.pool")
		for _, c := range []struct{ account, own, other string }{{account, own, othersLease}, {other, othersLease, own}} {
			client := r.as(c.account)
			r.eventually(func() (string, bool) { // the API server reads policies in the background
				err := writeLease(t.Context(), client, "fairlead-nodepool-ingress")
				return fmt.Sprint(err), apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
			}, "%s: %s may not take the Lease of the program", profile, c.account)
			require.NoError(t, writeLease(t.Context(), client, c.own), "%s: %s", profile, c.account)
			require.NoError(t, writeLease(t.Context(), client, c.own), "%s: %s renews", profile, c.account)
			for _, name := range []string{c.other, c.account + "x", "ingress"} {
				err := writeLease(t.Context(), client, name)
				assert.True(t, apierrors.IsForbidden(err), "%s: %s and %s: %v", profile, c.account, name, err)
			}
		}
		require.NoError(t,
			r.kube.CoordinationV1().Leases(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	// The program itself, and others, are not affected.
	r.apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: test-operator}, roleRef: {apiGroup: ` +
		`rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, name: nodepool-ingress, ` +
		`namespace: fairlead}]}`)
	require.NoError(t, writeLease(t.Context(), r.as("nodepool-ingress"), "fairlead-nodepool-ingress"))
	require.NoError(t,
		r.kube.CoordinationV1().Leases(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// as returns a client with the permissions of a ServiceAccount.
func (r *rig) as(account string) kubernetes.Interface {
	r.t.Helper()
	cfg := r.cluster.RESTConfig()
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(r.t, err)
	return client
}

// writeLease creates or updates a Lease, as an election does.
func writeLease(ctx context.Context, client kubernetes.Interface, name string) error {
	leases := client.CoordinationV1().Leases(namespace)
	found, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	_, err = leases.Update(ctx, found, metav1.UpdateOptions{})
	return err
}
