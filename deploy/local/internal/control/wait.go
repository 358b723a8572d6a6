package control

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/yurthub"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const (
	apiTimeout   = 3 * time.Minute
	nodesTimeout = 120 * time.Second
	pollInterval = 50 * time.Millisecond
)

// until calls f until it succeeds or limit has passed; then it returns the last error.
func until(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollInterval):
		}
	}
}

// waitAPI waits until the API server is ready and has created its own Service, kubernetes, which it does some time later: the EndpointSlice
// follows the Service and its namespace. After a restore, they are those of the snapshot.
func (c *cluster) waitAPI(ctx context.Context) error {
	err := until(ctx, apiTimeout, func(ctx context.Context) error {
		if err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		_, err := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	return nil
}

// waitNodes waits until every node is Ready and pods can be created in the default namespace.
func (c *cluster) waitNodes(ctx context.Context) error {
	err := until(ctx, nodesTimeout, func(ctx context.Context) error {
		nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, n := range nodes.Items {
			if isReady(&n) {
				ready++
			}
		}
		if ready < len(c.nodes) {
			return fmt.Errorf("%d of %d nodes ready (their logs are in %s)", ready, len(c.nodes), clusterapi.LogDir(c.Config.Dir))
		}
		_, err = c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for nodes: %w", err)
	}
	return nil
}

// proxySynced is kube-proxy's metric with the time of its last written rules; 0 means never.
const proxySynced = `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} `

// waitProxies waits until Services work on every node, because new pods depend on them.
func (c *cluster) waitProxies(ctx context.Context) error {
	if c.proxy != clusterapi.ProxyKube {
		return nil
	}
	for _, n := range c.nodes {
		url := "http://" + net.JoinHostPort(network.NodeIP(n.index), components.KubeProxyMetricsPort) + "/metrics"
		if err := until(ctx, nodesTimeout, func(ctx context.Context) error { return hasSynced(ctx, url) }); err != nil {
			return fmt.Errorf("wait for %s of %s: %w", clusterapi.KubeProxy, n.spec.Name, err)
		}
	}
	return nil
}

// hasSynced returns nil when the kube-proxy with this metrics page has written its rules.
func hasSynced(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if at, ok := strings.CutPrefix(lines.Text(), proxySynced); ok && at != "0" {
			return nil
		}
	}
	return cmp.Or(lines.Err(), errors.New("it has not written its rules yet"))
}

func isReady(n *corev1.Node) bool {
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// rootlessPolicy removes user and group numbers from pods: with a single mapped ID, files cannot get another owner.
//
//go:embed rootless-policy.yaml
var rootlessPolicy string

func (c *cluster) applyRootlessPolicy(ctx context.Context) error {
	if err := c.create(ctx, rootlessPolicy); err != nil {
		return fmt.Errorf("apply rootless policy: %w", err)
	}
	return nil
}

// applyYurthub creates what the Yurthubs of nodes read, if there is one.
func (c *cluster) applyYurthub(ctx context.Context) error {
	if !slices.ContainsFunc(c.Config.Nodes, func(n clusterapi.Node) bool { return n.Yurthub != "" }) {
		return nil
	}
	if err := c.create(ctx, yurthub.Objects); err != nil {
		return fmt.Errorf("create the objects of Yurthub: %w", err)
	}
	return nil
}

// create creates the objects of a YAML text.
func (c *cluster) create(ctx context.Context, text string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", components.Kubeconfig(c.Config.Dir, components.UserControl))
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	dec := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read objects: %w", err)
		}
		gvr, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		_, err := client.Resource(gvr).Namespace(o.GetNamespace()).Create(ctx, &o, metav1.CreateOptions{})
		// The API server makes its own namespaces some time after it is ready.
		for ; apierrors.IsNotFound(err) && o.GetNamespace() != "" && ctx.Err() == nil; time.Sleep(createInterval) {
			_, err = client.Resource(gvr).Namespace(o.GetNamespace()).Create(ctx, &o, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
	}
}

// createInterval is the interval of attempts to create an object in a namespace that does not exist yet.
const createInterval = 50 * time.Millisecond
