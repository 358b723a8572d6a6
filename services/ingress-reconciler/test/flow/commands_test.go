//go:build system

package flow

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/services/ingress-reconciler/internal/commands"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/render"
)

// command runs a subcommand against the cluster.
func (r *rig) command(args ...string) (out, log string, err error) {
	r.t.Helper()
	var stdout, stderr bytes.Buffer
	root := commands.New(&stdout, &stderr)
	root.SetArgs(append(args, "--kubeconfig", r.cluster.Kubeconfig))
	err = root.ExecuteContext(r.t.Context())
	return stdout.String(), stderr.String(), err
}

func TestPlanAndAdopt(t *testing.T) {
	t.Parallel()
	onEachRelease(t, func(t *testing.T, release ome.Release) {
		r := newRig(t, release, gatewayAPI)
		r.apply(gateway)
		r.service(ns, "chat", "engine")
		r.eventually(func() (string, bool) {
			_, log, err := r.command("plan", "--config-map", "fairlead/ours")
			return log, errors.Is(err, dryrun.ErrDiffers) && strings.HasSuffix(log, "would be created\n")
		}, "the plan has an object to create")
		stop := r.start()
		r.awaitCondition("chat", fmt.Sprintf(accepted, "chat.models.example.com"))
		_, log, err := r.command("plan", "--config-map", "fairlead/ours")
		require.NoError(t, err, log)
		stop()

		t.Log("OME creates an Ingress, and leaves it when OME's ingress is disabled")
		annotate := func(value string) {
			r.patch(isvc.Resource, ns, "chat", fmt.Sprintf(`{"metadata":{"annotations":{"ome.io/ingress-disable-creation":%s}}}`, value))
		}
		omes := func() error {
			_, err := r.client.Resource(render.Ingresses).Namespace(ns).Get(t.Context(), "chat", metav1.GetOptions{})
			return err
		}
		annotate(`"false"`)
		r.eventually(func() (string, bool) { err := omes(); return fmt.Sprint(err), err == nil }, "OME's Ingress")
		out, _, err := r.command("adopt", "--config-map", "fairlead/ours")
		require.NoError(t, err)
		assert.Equal(t, "OME left nothing behind\n", out, "the Ingress is in use")
		annotate("null")
		r.settles()
		out, _, err = r.command("adopt", "--config-map", "fairlead/ours")
		require.NoError(t, err)
		assert.Equal(t, "Ingress models/chat would be deleted (--dry-run=false deletes it): this program exposes the service\n", out)
		require.NoError(t, omes())
		out, _, err = r.command("adopt", "--config-map", "fairlead/ours", "--dry-run=false")
		require.NoError(t, err)
		assert.Equal(t, "Ingress models/chat was deleted: this program exposes the service\n", out)
		require.True(t, apierrors.IsNotFound(omes()))
		r.has("httproute chat.models.example.com/ -> chat-engine by public")
	})
}
