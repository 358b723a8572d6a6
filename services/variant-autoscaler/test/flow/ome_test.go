//go:build system

package flow

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/services/variant-autoscaler/internal/config"
)

// TestOME: a Deployment of OME is left alone until OME leaves its replicas to others, as the condition says how.
func TestOME(t *testing.T) {
	t.Parallel()
	r := newRig(t, "actuator=scale")
	r.startOME()
	r.apply("{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: chat, namespace: models}, spec: {engine: {minReplicas: 1, maxReplicas: 2}}}")
	r.replicas("deployment", "chat-engine", 1)
	r.start(config.ActuatorScale)
	r.variant("chat-engine", "apps/v1", "Deployment", 3)
	c := r.condition("chat-engine", "Applied", "False TargetOwnedByAutoscaler")
	assert.Contains(t, c.Message, "OME does with the annotation ome.io/autoscalerClass: external on InferenceService chat")

	assert.Empty(t, r.writes())

	r.annotate("chat", `{"ome.io/autoscalerClass": "external"}`)
	r.replicas("deployment", "chat-engine", 3)
	r.condition("chat-engine", "Applied", "True Scaled")
	r.annotate("chat", `{"note": "OME changes the pods"}`)
	r.bound("chat-engine", 5)
	r.replicas("deployment", "chat-engine", 5)
	r.condition("chat-engine", "Applied", "True Scaled")
	assert.Equal(t, 2, count(r.writes(), "deployments/chat-engine"))

	r.annotate("chat", `{"ome.io/autoscalerClass": null}`)
	r.pass()
	r.condition("chat-engine", "Applied", "False TargetOwnedByAutoscaler")
	r.bound("chat-engine", 6)
	r.condition("chat-engine", "Applied", "False TargetOwnedByAutoscaler")
	assert.Equal(t, 2, count(r.writes(), "deployments/chat-engine"))
}

// startOME runs OME 1.2 until the test ends.
func (r *rig) startOME() {
	r.t.Helper()
	r.apply("{apiVersion: v1, kind: Namespace, metadata: {name: ome}}")
	r.apply(ome.CRDs(ome.Release12))
	r.apply(ome.Config(ome.Release12))
	o := ome.DefaultOptions()
	o.PodImage = "server"
	e, err := ome.New(ome.Params{Options: o, Config: r.RESTConfig(), Log: zap.NewNop()})
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		assert.NoError(r.t, <-ended)
	})
}

// annotate changes annotations of an InferenceService.
func (r *rig) annotate(service, annotations string) {
	r.t.Helper()
	client := dynamic.NewForConfigOrDie(r.RESTConfig()).Resource(schema.GroupVersionResource{Group: "ome.io", Version: "v1beta1", Resource: "inferenceservices"})
	_, err := client.Namespace("models").Patch(r.t.Context(), service, types.MergePatchType, []byte(`{"metadata": {"annotations": `+annotations+`}}`), metav1.PatchOptions{})
	require.NoError(r.t, err)
}
