// Package kube connects a service to a Kubernetes API server and watches kinds whose CRDs may be missing.
//
// Options.RESTConfig uses the first source that exists: the flag, KUBECONFIG, the pod's service account, ~/.kube/config. An
// OptionalInformer is an informer for a kind whose CRD can be absent, installed later or deleted.
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

// Options selects the API server and limits the request rate.
type Options struct {
	// Kubeconfig is the path of a file. If it is empty: KUBECONFIG, then the service account, then ~/.kube/config.
	Kubeconfig string
	// QPS and Burst limit the requests of this client, in addition to API Priority and Fairness on the server.
	QPS   float32
	Burst int
}

// DefaultOptions returns limits at which a service fills its caches quickly.
func DefaultOptions() Options {
	return Options{QPS: 50, Burst: 100}
}

// AddFlags binds the options to the flags that every service has.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Path of the kubeconfig file. Defaults to KUBECONFIG, then the pod's service account, then ~/.kube/config.")
	fs.Float32Var(&o.QPS, "kube-api-qps", o.QPS, "Sustained limit of requests per second to the Kubernetes API.")
	fs.IntVar(&o.Burst, "kube-api-burst", o.Burst, "Maximum burst of requests to the Kubernetes API.")
}

// Validate returns an error that names the first flag with an invalid value.
func (o Options) Validate() error {
	if o.QPS <= 0 {
		return fmt.Errorf("--kube-api-qps %v must be greater than zero", o.QPS)
	}
	if o.Burst < 1 {
		return fmt.Errorf("--kube-api-burst %d must be at least one", o.Burst)
	}
	return nil
}

// RESTConfig returns the configuration of the first source that exists. If that source is invalid, RESTConfig returns an
// error: falling back to the next source could reach another cluster.
func (o Options) RESTConfig(userAgent string) (*rest.Config, error) {
	cfg, err := o.loadConfig()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = userAgent
	cfg.QPS = o.QPS
	cfg.Burst = o.Burst
	return cfg, nil
}

func (o Options) loadConfig() (*rest.Config, error) {
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
	// Not clientcmd.RecommendedHomeFile, which is computed at package initialization.
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: --kubeconfig and KUBECONFIG are not set, not running in a pod: %w", err)
	}
	path := filepath.Join(home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("load kubeconfig: --kubeconfig and KUBECONFIG are not set, not running in a pod: %w", err)
	}
	return fromFiles(path, &clientcmd.ClientConfigLoadingRules{ExplicitPath: path})
}

func fromFiles(source string, rules *clientcmd.ClientConfigLoadingRules) (*rest.Config, error) {
	files, err := rules.Load()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig from %s: %w", source, err)
	}
	// Not the deferred loader, which falls back to the service account if the files are empty.
	cfg, err := clientcmd.NewDefaultClientConfig(*files, &clientcmd.ConfigOverrides{}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("load kubeconfig from %s: file defines no cluster", source)
	}
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig from %s: %w", source, err)
	}
	return cfg, nil
}
