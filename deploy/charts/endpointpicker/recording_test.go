package endpointpicker_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

func TestRecording(t *testing.T) {
	t.Parallel()
	const path = "/var/lib/endpoint-picker"
	tests := []struct {
		name string
		give helm.Values
		want corev1.VolumeSource
	}{
		{
			name: "in an emptyDir", give: helm.Values{"recording": helm.Values{"enabled": true}},
			want: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("320Mi"))}},
		},
		{
			name: "in a claim", give: helm.Values{
				"recording": helm.Values{"enabled": true, "existingClaim": "recordings"}, "replicas": 1, "strategy": helm.Values{"type": "Recreate"},
			},
			want: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "recordings"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set := objects.Render(t, chart, pool(tt.give))
			container := objects.Container(t, set)
			assert.Subset(t, container.Args, []string{"--record-file=" + path + "/picks.jsonl", "--record-max-bytes=256Mi"})
			assert.Equal(t, []corev1.VolumeMount{{Name: "recording", MountPath: path}}, container.VolumeMounts)
			volumes := objects.Pod(t, set).Spec.Volumes
			require.Len(t, volumes, 1)
			assert.Equal(t, tt.want, volumes[0].VolumeSource)
		})
	}
	assert.NotContains(t, objects.Container(t, objects.Render(t, chart, pool(nil))).Args, "--record-max-bytes=256Mi", "not by default")
}

func TestRecordingsThatCannotWork(t *testing.T) {
	t.Parallel()
	for want, values := range map[string]helm.Values{
		"set replicas: 1 and strategy.type: Recreate": {"recording": helm.Values{"enabled": true, "existingClaim": "c"}},
		"it has no effect with gateway.earlyClose":    {"recording": helm.Values{"enabled": true}, "gateway": helm.Values{"earlyClose": true}},
	} {
		_, err := helm.Template(chart, pool(values))
		require.ErrorContains(t, err, want)
	}
}
