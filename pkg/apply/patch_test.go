package apply

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestPatchLatestNamesTheVersionThatWasRead(t *testing.T) {
	tests := map[string]struct {
		namespace   string
		change      Change
		want        string
		subresource string
	}{
		"metadata": {
			namespace: "default", change: Change{Metadata: map[string]any{"finalizers": []string{}}},
			want: `{"metadata":{"uid":"u","resourceVersion":"7","finalizers":[]}}`,
		},
		"status, without a namespace": {
			change: Change{Status: map[string]any{"conditions": nil}},
			want:   `{"metadata":{"uid":"u","resourceVersion":"7"},"status":{"conditions":null}}`, subresource: "status",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
			var sent clienttesting.PatchActionImpl
			client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				sent, _ = action.(clienttesting.PatchActionImpl)
				return true, service("owner"), nil
			})
			live := &metav1.ObjectMeta{Name: "chat", Namespace: tt.namespace, UID: "u", ResourceVersion: "7"}
			require.NoError(t, PatchLatest(t.Context(), client.Resource(services), live, "fairlead", tt.change))
			assert.JSONEq(t, tt.want, string(sent.GetPatch()))
			assert.Equal(t, []string{"chat", tt.namespace, tt.subresource}, []string{sent.GetName(), sent.GetNamespace(), sent.GetSubresource()})
			assert.Equal(t, "fairlead", sent.GetPatchOptions().FieldManager)
		})
	}
}
