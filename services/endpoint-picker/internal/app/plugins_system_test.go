//go:build system

package app

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
)

func TestConfigurationIsReloaded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	write := func(scorer string) {
		text := "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: " + scorer + "}]\n"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("queue-scorer")
	r := newRig(t, config.Drain{Timeout: kubetest.Patience}, func(c *config.Config) { c.Plugins.File = path })
	scorer := func() string { return r.Reloader.Current().Profile.Scorers[0].Name }
	event := func() corev1.Event {
		select {
		case e := <-r.events:
			return e
		case <-time.After(kubetest.Patience):
			t.Fatal("no Event")
			return corev1.Event{}
		}
	}
	metrics := func() string { return r.get(t, r.HTTP.MetricsAddress(), "/metrics") }
	assert.Equal(t, "queue-scorer", scorer())
	first := r.Reloader.Current().Hash
	assert.Contains(t, metrics(), `fairlead_picker_config_info{hash="`+first+`"} 1`)

	write("queu-scorer")
	bad := event()
	assert.Equal(t, []string{"Warning", reload.ReasonInvalid}, []string{bad.Type, bad.Reason})
	assert.Contains(t, bad.Message, `line 3, column 18: plugins[0].type: "queu-scorer" is not a type of plugin: did you mean "queue-scorer"?`)
	assert.Equal(t, types.UID("7"), bad.InvolvedObject.UID)
	assert.Equal(t, "InferencePool", bad.InvolvedObject.Kind)
	assert.Contains(t, metrics(), "fairlead_picker_config_last_reload_successful 0")
	assert.Equal(t, "queue-scorer", scorer())
	stream := r.open(t, r.gateway(t))
	respond(t, stream, true)
	require.NoError(t, stream.CloseSend())

	write("load-aware-scorer")
	good := event()
	assert.Equal(t, []string{"Normal", reload.ReasonReloaded}, []string{good.Type, good.Reason})
	assert.Equal(t, "load-aware-scorer", scorer())
	page := metrics()
	assert.Contains(t, page, "fairlead_picker_config_last_reload_successful 1")
	assert.NotContains(t, page, first)
}
