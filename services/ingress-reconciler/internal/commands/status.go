package commands

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/ingress-reconciler/internal/condition"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// statusOptions are the flags of status.
type statusOptions struct {
	selection

	kube   connection
	files  []string
	output string
}

func newStatus(out, log io.Writer, transport http.RoundTripper) *cobra.Command {
	o := &statusOptions{kube: connection{kube.DefaultOptions(), transport}}
	cmd := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "Print where services are exposed, as a table",
		Long: "Print the condition fairlead.dev/Exposed, the URLs and the objects of each InferenceService. status lists objects and\n" +
			"needs no other permission. Exit codes: 0, or 1 after an error.",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := o.parseFlags(names); err != nil {
				return err
			}
			if !slices.Contains([]string{"", "wide", "json"}, o.output) {
				return fmt.Errorf("--output %q is not one of wide, json", o.output)
			}
			return o.runStatus(cmd.Context(), cmd.InOrStdin(), out, log)
		},
	}
	fs := cmd.Flags()
	o.kube.AddFlags(fs)
	o.addFlags(fs)
	fs.StringSliceVarP(&o.files, "filename", "f", nil,
		"File or folder of manifests to read instead of a cluster, - for stdin. May be repeated.")
	fs.StringVarP(&o.output, "output", "o", "", "Format: wide for a table with the message of the condition, or json. Empty: a table.")
	return cmd
}

func (o *statusOptions) runStatus(ctx context.Context, in io.Reader, out, log io.Writer) error {
	w, err := o.readStatus(ctx, in, log)
	if err != nil {
		return err
	}
	rows := o.statusRows(w)
	if o.output == "json" {
		return dryrun.WriteJSON(out, rows)
	}
	return o.printTable(rows, out)
}

func (o *statusOptions) readStatus(ctx context.Context, in io.Reader, log io.Writer) (*dryrun.World, error) {
	if len(o.files) > 0 {
		w, err := dryrun.ReadFiles(o.files, in)
		if err == nil {
			w.Print(log)
		}
		return w, err
	}
	client, err := o.kube.newClient("status")
	if err != nil {
		return nil, err
	}
	return listStatus(ctx, client, log)
}

// listStatus lists InferenceServices and the objects that the program wrote.
func listStatus(ctx context.Context, client dynamic.Interface, log io.Writer) (*dryrun.World, error) {
	list, err := client.Resource(isvc.Resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", isvc.Resource.GroupResource(), err)
	}
	w, err := dryrun.List(ctx, client, informers.Written, managedSelector)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		w.Objects = append(w.Objects, &list.Items[i])
	}
	w.Print(log)
	return w, nil
}

// statusRow is the status of one service, in the format of -o json.
type statusRow struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Exposed   string   `json:"exposed"` // status of the condition; empty: the service has no condition
	Reason    string   `json:"reason"`
	Message   string   `json:"message"`
	URLs      []string `json:"urls"`
	Objects   []string `json:"objects"`
}

// statusRows returns the status of the selected services, sorted.
func (o *statusOptions) statusRows(w *dryrun.World) []statusRow {
	objects := map[cache.ObjectName][]string{}
	services := map[cache.ObjectName]*unstructured.Unstructured{}
	for _, u := range w.Objects {
		if isService(u) {
			services[cache.MetaObjectToName(u)] = u
		} else if owner, found := informers.OwnerName(u); found && informers.IsManaged(u) {
			objects[owner] = append(objects[owner], u.GetKind()+"/"+u.GetName())
		}
	}
	rows := []statusRow{}
	for _, name := range o.selectNames(w.Objects) {
		row := statusRow{Namespace: name.Namespace, Name: name.Name, URLs: []string{}, Objects: []string{}}
		row.Objects = append(row.Objects, objects[name]...)
		slices.Sort(row.Objects)
		row.setCondition(services[name])
		rows = append(rows, row)
	}
	return rows
}

// setCondition adds the fields of the condition.
func (r *statusRow) setCondition(u *unstructured.Unstructured) {
	s, err := isvc.Read(u)
	if err != nil {
		r.Message = err.Error()
		return
	}
	c := condition.Find(s)
	if c == nil {
		return
	}
	r.Exposed, r.Reason, r.Message = string(c.Status), c.Reason, c.Message
	r.URLs = append(r.URLs, condition.ParseURLs(c.Message)...)
}

// printTable writes rows as a table. An empty field is "-", so that all rows have the same number of columns.
func (o *statusOptions) printTable(rows []statusRow, out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	header := []string{"NAMESPACE", "NAME", "EXPOSED", "REASON", "URLS", "OBJECTS"}
	if o.output == "wide" {
		header = append(header, "MESSAGE")
	}
	fmt.Fprintln(t, strings.Join(header, "\t"))
	for i := range rows {
		r := &rows[i]
		fields := []string{r.Namespace, r.Name, r.Exposed, r.Reason, strings.Join(r.URLs, ","), strings.Join(r.Objects, ","), r.Message}
		for i, f := range fields {
			if fields[i] = strings.Map(toPrintable, f); f == "" {
				fields[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(fields[:len(header)], "\t"))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// toPrintable replaces control characters: tenants can write the status of their services.
func toPrintable(r rune) rune {
	if r < ' ' || 0x7f <= r && r < 0xa0 {
		return '?'
	}
	return r
}
