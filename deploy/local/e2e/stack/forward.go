package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

// EnvoyAdmin reads a page of the administration interface of the Envoy with its own bootstrap. The interface listens only on
// loopback, so EnvoyAdmin connects like `kubectl port-forward`.
func EnvoyAdmin(ctx context.Context, c *cluster.Cluster, path string) (string, error) {
	list, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + Envoy})
	if err != nil {
		return "", err
	}
	if len(list.Items) != 1 {
		return "", fmt.Errorf("want one pod of Envoy, there are %d", len(list.Items))
	}
	transport, upgrader, err := spdy.RoundTripperFor(c.RESTConfig())
	if err != nil {
		return "", err
	}
	url := c.Clientset().CoreV1().RESTClient().Post().Resource("pods").Namespace(metav1.NamespaceDefault).Name(list.Items[0].Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.New(dialer, []string{"0:19000"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case err := <-ended:
		return "", fmt.Errorf("forward to Envoy: %w", err)
	case <-ready:
	}
	page, err := fetchForwarded(ctx, forwarder, path)
	close(stop)
	return page, errors.Join(err, <-ended)
}

func fetchForwarded(ctx context.Context, forwarder *portforward.PortForwarder, path string) (string, error) {
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", err
	}
	client := &http.Client{Timeout: kubetest.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	return get(ctx, client, fmt.Sprintf("http://127.0.0.1:%d%s", ports[0].Local, path))
}
