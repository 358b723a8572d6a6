//go:build system

package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestDeleteOthers(t *testing.T) {
	t.Parallel()
	c := Start(t, ControlPlaneOnly)
	configMaps := c.Clientset().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	add := func(name string, owner ...metav1.OwnerReference) *corev1.ConfigMap {
		made, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owner}}, metav1.CreateOptions{})
		require.NoError(t, err)
		return made
	}
	add("kept")
	config := c.RESTConfig()
	config.WarningHandler = rest.NoWarnings{} // about deprecated kinds
	before, err := listObjects(t.Context(), config)
	require.NoError(t, err)

	add("deleted")
	require.NoError(t, c.Apply(t.Context(), `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things, singular: thing}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`))
	require.NoError(t, c.Apply(t.Context(), "{apiVersion: example.com/v1, kind: Thing, metadata: {namespace: default, name: deleted, finalizers: [example.com/nobody]}}"))

	require.NoError(t, deleteOthers(t.Context(), config, before, time.Second))
	after, err := listObjects(t.Context(), config)
	require.NoError(t, err)
	assert.ElementsMatch(t, slices.DeleteFunc(before, isRecreated), slices.DeleteFunc(after, isRecreated))
	_, err = configMaps.Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err)
}
