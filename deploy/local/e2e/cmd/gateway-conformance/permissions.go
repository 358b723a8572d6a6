package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"fairlead.dev/pkg/kubetest/cluster"
)

// account is the ServiceAccount of the program in the chart's roles.
const account = "backendset-syncer"

// grant gives the program the permissions of the chart, and no others. It returns a kubeconfig with them.
func (w *world) grant(ctx context.Context) (string, error) {
	root, err := cluster.Repository()
	if err != nil {
		return "", err
	}
	roles, err := w.cluster.Helm(ctx, "template", account, filepath.Join(root, "charts", account), "--namespace", systemSpace, "--set",
		"gateways.enabled=true", "--set", "configMap.name="+account, "--show-only", "templates/rbac.yaml")
	if err != nil {
		return "", err
	}
	if err := w.cluster.Apply(ctx, roles); err != nil {
		return "", err
	}
	config, err := clientcmd.LoadFromFile(w.cluster.Kubeconfig)
	if err != nil {
		return "", fmt.Errorf("read kubeconfig: %w", err)
	}
	for _, u := range config.AuthInfos {
		u.Impersonate, u.ImpersonateGroups = "system:serviceaccount:"+systemSpace+":"+account, []string{"system:authenticated"}
	}
	file := filepath.Join(w.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return file, nil
}

// checkPermissions checks that the API server has refused no request of the program.
func checkPermissions(log string) error {
	text, err := os.ReadFile(log)
	if err != nil {
		return fmt.Errorf("read log of the program: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "is forbidden") || strings.Contains(line, "cannot list resource") {
			return fmt.Errorf("the roles of the chart do not suffice: %s", strings.TrimSpace(line))
		}
	}
	return nil
}
