// Package kube connects a service to a Kubernetes API server and watches kinds that may not be there.
//
// Options becomes a rest.Config from the first source that applies: the flag, KUBECONFIG, the pod's service account, the
// user's own kubeconfig. An OptionalInformer is an informer for a kind whose CRD may be absent, appear or go away.
package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options says which API server to use and how fast.
type Options struct {
	// Kubeconfig is a file; empty means KUBECONFIG, then the service account, then ~/.kube/config.
	Kubeconfig string
	// QPS and Burst limit this client's requests; the API server has its own priority and fairness besides.
	QPS   float32
	Burst int
}

// DefaultOptions returns limits that let a service fill its caches quickly.
func DefaultOptions() Options {
	return Options{QPS: 50, Burst: 100}
}

// AddFlags binds the options to the flags that every service has.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Kubeconfig file. Empty: KUBECONFIG, the pod's service account, then ~/.kube/config.")
	fs.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "Requests a second to the Kubernetes API, sustained.")
	fs.IntVar(&o.Burst, "kube-api-burst", o.Burst, "Requests to the Kubernetes API in one burst.")
}

// Validate names the flag with a value that cannot be used.
func (o Options) Validate() error {
	if o.QPS <= 0 {
		return fmt.Errorf("--kube-api-qps %v is not greater than zero", o.QPS)
	}
	if o.Burst < 1 {
		return fmt.Errorf("--kube-api-burst %d is less than one", o.Burst)
	}
	return nil
}

// RESTConfig returns the configuration of the first source that applies. A source that applies and is broken is an
// error: falling through to the next could reach another cluster.
func (o Options) RESTConfig(userAgent string) (*rest.Config, error) {
	cfg, err := o.load()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = userAgent
	cfg.QPS = o.QPS
	cfg.Burst = o.Burst
	return cfg, nil
}

func (o Options) load() (*rest.Config, error) {
	if o.Kubeconfig != "" {
		return fromFiles("--kubeconfig "+o.Kubeconfig, &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig})
	}
	if list := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); list != "" {
		rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(list)}
		return fromFiles("KUBECONFIG "+list, rules)
	}
	cfg, err := rest.InClusterConfig()
	if err == nil {
		return cfg, nil
	}
	if !errors.Is(err, rest.ErrNotInCluster) {
		return nil, fmt.Errorf("load kubeconfig from the service account: %w", err)
	}
	return fromHome()
}

func fromHome() (*rest.Config, error) {
	// Not clientcmd.RecommendedHomeFile, which is fixed before main.
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: --kubeconfig and KUBECONFIG are not set, not in a pod, and: %w", err)
	}
	path := filepath.Join(home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("load kubeconfig: --kubeconfig and KUBECONFIG are not set, not in a pod, and: %w", err)
	}
	return fromFiles(path, &clientcmd.ClientConfigLoadingRules{ExplicitPath: path})
}

func fromFiles(source string, rules *clientcmd.ClientConfigLoadingRules) (*rest.Config, error) {
	files, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig from %s: %w", source, err)
	}
	// Not the deferred loader, which takes the service account when the files are empty.
	cfg, err := clientcmd.NewDefaultClientConfig(*files, &clientcmd.ConfigOverrides{}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("load kubeconfig from %s: no cluster in it", source)
	}
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig from %s: %w", source, err)
	}
	return cfg, nil
}
