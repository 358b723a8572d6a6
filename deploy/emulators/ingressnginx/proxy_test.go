//go:build system

package ingressnginx

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/pkg/kubetest/cluster"
)

func TestProxy(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.ControlPlaneOnly)
	p, err := New(c.RESTConfig())
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }()
	t.Cleanup(func() { require.NoError(t, <-ended) })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, p.WriteKubeconfig(kubeconfig))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client := kubernetes.NewForConfigOrDie(config)

	for name, controller := range map[string]string{"nginx": controllerName, "other": "example.com/other"} {
		_, err := client.NetworkingV1().IngressClasses().Create(t.Context(), &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: controller},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	ingresses := client.NetworkingV1().Ingresses("default")
	watch, err := ingresses.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watch.Stop()
	create := func(name, class, host string) error {
		in := ingress("default/"+name, host, "Prefix / s")
		in.Spec.IngressClassName = &class
		_, err := ingresses.Create(t.Context(), in, metav1.CreateOptions{})
		return err
	}
	require.NoError(t, create("first", "nginx", "a.example.com"))
	err = create("second", "nginx", "a.example.com")
	require.EqualError(t, err, `admission webhook "validate.nginx.ingress.kubernetes.io" denied the request: host "a.example.com" and path "/" is already defined in ingress default/first`)
	require.True(t, apierrors.IsBadRequest(err))
	require.NoError(t, create("third", "other", "a.example.com"), "the class of another controller")
	require.NoError(t, create("fourth", "nginx", "b.example.com"))
	require.True(t, apierrors.IsAlreadyExists(create("fourth", "nginx", "b.example.com")), "the API server's own errors come first")

	patch := func(name string, kind types.PatchType, text string, force *bool) error {
		_, err := ingresses.Patch(t.Context(), name, kind, []byte(text), metav1.PatchOptions{FieldManager: "test", Force: force})
		return err
	}
	require.ErrorContains(t, patch("third", types.MergePatchType, `{"spec": {"ingressClassName": "nginx"}}`, nil), "already defined in ingress default/first")
	require.ErrorContains(t, patch("new", types.ApplyPatchType, `{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "new"}, "spec": {
		"ingressClassName": "nginx", "rules": [{"host": "b.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}`,
		new(true)), "already defined in ingress default/fourth")
	require.NoError(t, patch("first", types.MergePatchType, `{"metadata": {"labels": {"a": "b"}}}`, nil), "an Ingress may overlap itself")

	for range 4 { // three creations and one update
		require.NotEmpty(t, (<-watch.ResultChan()).Type)
	}
	all, err := c.Clientset().NetworkingV1().Ingresses("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, all.Items, 3, "refused Ingresses do not exist")
}
