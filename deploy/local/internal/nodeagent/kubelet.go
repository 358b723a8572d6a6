package nodeagent

import (
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/supervise"
	"fairlead.dev/deploy/local/internal/yurthub"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Client returns how the kubelet reaches the API server: by Yurthub, if the node has one.
func (m *Machine) Client() (*rest.Config, error) {
	if m.Node.Yurthub != "" {
		return &rest.Config{Host: yurthub.Proxy}, nil
	}
	return clientcmd.BuildConfigFromFlags("", components.Kubeconfig(m.Config.Dir, m.Node.Name))
}

// startYurthub runs Yurthub as a process of the node, and restarts it when it ends. Its files are on the node's disk.
func (m *Machine) startYurthub() error {
	root := filepath.Join(m.Dir(), "yurthub")
	if err := yurthub.Install(&m.Config, m.Node.Name, root); err != nil {
		return err
	}
	p := supervise.New(m.Node.Yurthub, supervise.Spec{
		Name: "yurthub", Args: yurthub.Args(m.Node, m.Index, root), Env: os.Environ(),
		LogFile: filepath.Join(clusterapi.LogDir(m.Config.Dir), m.Node.Name+"-yurthub.log"),
		Died:    func(why error) { klog.ErrorS(why, "Restarting Yurthub") },
	})
	p.Settle()
	return p.Start()
}
