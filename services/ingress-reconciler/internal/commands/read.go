package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/ingress-reconciler/internal/informers"
)

// readFiles reads manifests. All kinds count as served: who plans from files has no cluster to look at.
func readFiles(paths []string, in io.Reader) (*world, error) {
	w := &world{served: func(schema.GroupVersionResource) bool { return true }}
	for _, path := range paths {
		if path == "-" {
			if err := w.decode("stdin", in); err != nil {
				return nil, err
			}
			continue
		}
		if err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			manifest := file == path || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file))
			if err != nil || entry.IsDir() || !manifest {
				return err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			return w.decode(file, bytes.NewReader(text))
		}); err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
	}
	return w, nil
}

// decode reads the objects of one text, which may be lists.
func (w *world) decode(name string, in io.Reader) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(in, 4096)
	for {
		u, err := decodeManifest(decoder)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errNoManifest):
			w.skip("%s: skipped a document without apiVersion and kind: it is not a Kubernetes manifest", name)
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		case u == nil:
			continue
		case u.IsList():
			list, err := u.ToList()
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for i := range list.Items {
				w.objects = append(w.objects, &list.Items[i])
			}
		default:
			w.objects = append(w.objects, u)
		}
	}
}

// readCluster lists all that plans follow from, and gets ConfigMaps.
func readCluster(ctx context.Context, cfg *rest.Config, kinds []string, configMaps ...cache.ObjectName) (*world, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	known := map[schema.GroupVersionResource]bool{}
	w := &world{kinds: kinds, served: func(resource schema.GroupVersionResource) bool { return known[resource] }}
	read := map[string]bool{}
	for _, k := range informers.AllKinds(kinds) {
		if key := k.Resource.String() + k.Selector; read[key] {
			continue
		} else {
			read[key] = true
		}
		list, err := client.Resource(k.Resource).List(ctx, metav1.ListOptions{LabelSelector: k.Selector})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case leftOut(err, k.Resource):
			w.skip("%s: skipped, because this user may not list them; the plan treats the kind as not available", k.Resource.GroupResource())
			continue
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", k.Resource.Resource, err)
		}
		known[k.Resource] = true
		for i := range list.Items {
			w.objects = append(w.objects, &list.Items[i])
		}
	}
	for _, name := range configMaps {
		if name.Name == "" {
			continue
		}
		u, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("get ConfigMap %s: %w", name, err)
		default:
			w.objects = append(w.objects, u)
		}
	}
	return w, nil
}

// leftOut reports whether an error means that the installation leaves out a kind that the program writes.
func leftOut(err error, resource schema.GroupVersionResource) bool {
	return apierrors.IsForbidden(err) && slices.Contains(informers.Written, resource)
}
