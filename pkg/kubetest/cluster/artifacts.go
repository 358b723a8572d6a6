package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"fairlead.dev/pkg/kubetest/clusterapi"
)

// keepTimeout limits the time to save artifacts of a failed test: the API server may be down.
const keepTimeout = 20 * time.Second

var unsafeName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// SaveArtifacts saves the artifacts of a failed test, and logs their path. Start calls it.
func (c *Cluster) SaveArtifacts(tb testing.TB) {
	top := os.Getenv(ArtifactsEnv)
	if top == "" {
		root, err := Repository()
		if err != nil {
			root = os.TempDir()
		}
		top = filepath.Join(root, ".local", "failed")
	}
	dir := filepath.Join(top, unsafeName.ReplaceAllString(tb.Name(), "_"))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), keepTimeout)
	defer cancel()
	if err := c.Save(ctx, dir); err != nil {
		tb.Logf("cluster: failed to save some artifacts: %v", err)
	}
	tb.Logf("cluster: saved logs, events and objects in %s", dir)
}

// Save writes the logs of all components and pods, and all objects except Secrets, into dir. It deletes dir first.
func (c *Cluster) Save(ctx context.Context, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	errs := []error{
		os.WriteFile(filepath.Join(dir, "launcher.log"), []byte(c.log.String()), 0o644),
		copyTree(clusterapi.LogDir(c.Ready.Dir), filepath.Join(dir, "log")),
	}
	if c.foreign == nil {
		errs = append(errs, c.saveStatus(ctx, filepath.Join(dir, "status.json")))
	}
	podLogs, err := filepath.Glob(filepath.Join(c.Ready.Dir, "nodes", "*", "logs"))
	errs = append(errs, err)
	for _, logs := range podLogs {
		node := filepath.Base(filepath.Dir(logs))
		errs = append(errs, copyTree(logs, filepath.Join(dir, "pods", node)))
	}
	errs = append(errs, saveObjects(ctx, c.rest, filepath.Join(dir, "objects")))
	return errors.Join(errs...)
}

func (c *Cluster) saveStatus(ctx context.Context, file string) error {
	s, err := c.Status(ctx)
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o644)
}

// saveObjects writes one file for each kind that can be listed, except Secrets.
func saveObjects(ctx context.Context, cfg *rest.Config, dir string) error {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout, cfg.WarningHandler = keepTimeout/4, rest.NoWarnings{} // no warnings about deprecated kinds
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	lists, err := disco.ServerPreferredResources()
	errs := []error{err} // discovery of some groups can fail; lists has the others
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") && r.Kind != "Secret" {
				errs = append(errs, saveKind(ctx, client, gv.WithResource(r.Name), dir))
			}
		}
	}
	return errors.Join(errs...)
}

func saveKind(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, dir string) error {
	objects, err := client.Resource(gvr).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
	}
	if len(objects.Items) == 0 {
		return nil
	}
	raw, err := json.MarshalIndent(objects, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, gvr.GroupResource().String()+".json"), raw, 0o644)
}

// copyTree copies regular files. It skips the symbolic links that kubelets create to their logs.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyFile(path, filepath.Join(to, rel))
	})
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
