package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/services/ingress-reconciler/internal/informers"
	"fairlead.dev/services/ingress-reconciler/internal/render"
	"fairlead.dev/services/ingress-reconciler/internal/semantics"
)

// requestOptions are the flags of plan that describe a request.
type requestOptions struct {
	method   string // or the method and the URL
	headers  []string
	entrance string
	planned  bool
}

func (o *requestOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.method, "request", "",
		"Method of a request whose URL is the argument. Explain which object and backend answer the request.")
	fs.StringArrayVarP(&o.headers, "header", "H", nil, "With --request, a header as 'Name: value'. May be repeated.")
	fs.StringVar(&o.entrance, "entrance", "",
		"With --request, the Gateway or Istio Gateway (namespace/name) or IngressClass (name) that receives the request. Empty: each "+
			"that serves the host.")
	fs.BoolVar(&o.planned, "planned", false, "With --request, use the objects of the plan instead of those in the cluster.")
}

// Limits of a request. Data planes reject larger requests: Envoy accepts 100 headers and 60 KiB, ingress-nginx 32 KiB.
const (
	maxURL     = 8 << 10
	maxHeaders = 100
	maxHeader  = 8 << 10
)

var errNoRequest = errors.New("give --request METHOD URL, such as --request GET http://chat.models.example.com/v1/models")

// parseRequest returns the request, and the port to which it is sent.
func (o *requestOptions) parseRequest(args []string) (r semantics.Request, port int32, err error) {
	words := append(strings.Fields(o.method), args...)
	if len(words) != 2 {
		return r, 0, errNoRequest
	}
	r.Method = words[0]
	if upper := strings.ToUpper(r.Method); strings.Trim(upper, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return r, 0, fmt.Errorf("method %q does not consist of letters", r.Method)
	} else if r.Method != upper {
		return r, 0, fmt.Errorf("method %s: methods are case-sensitive: use %s", r.Method, upper)
	}
	if port, err = parseURL(words[1], &r); err != nil {
		return r, 0, err
	}
	r.Header, err = parseHeaders(o.headers)
	return r, port, err
}

func parseURL(text string, r *semantics.Request) (int32, error) {
	if len(text) > maxURL {
		return 0, fmt.Errorf("the URL has %d bytes: at most %d are allowed", len(text), maxURL)
	}
	u, err := url.Parse(text)
	if err != nil {
		return 0, fmt.Errorf("URL: %w", err)
	}
	defaultPort := map[string]int32{"http": 80, "https": 443}[u.Scheme]
	if defaultPort == 0 || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return 0, fmt.Errorf("URL %q is not of the form http://host/path or https://host/path", text)
	}
	r.Host, r.Path = u.Host, cmp.Or(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		r.Path += "?" + u.RawQuery
	}
	return parsePort(u, defaultPort)
}

// parsePort returns the port of a URL, or defaultPort if it has none.
func parsePort(u *url.URL, defaultPort int32) (int32, error) {
	if u.Port() == "" {
		return defaultPort, nil
	}
	port, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil || port < 1 || port > 65535 {
		return 0, fmt.Errorf("URL %q: %s is not a port", u, u.Port())
	}
	return int32(port), nil
}

func parseHeaders(lines []string) (map[string]string, error) {
	if len(lines) > maxHeaders {
		return nil, fmt.Errorf("%d headers: at most %d are allowed", len(lines), maxHeaders)
	}
	headers := map[string]string{}
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case len(line) > maxHeader:
			return nil, fmt.Errorf("header %.40q has %d bytes: at most %d are allowed", line, len(line), maxHeader)
		case !found || name == "" || strings.ContainsFunc(name, notToken):
			return nil, fmt.Errorf("header %q is not of the form 'Name: value'", line)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return nil, fmt.Errorf("header %q has a control character", line)
		case canonical == "Host":
			return nil, errors.New("header Host: put the host into the URL")
		}
		if _, twice := headers[canonical]; twice {
			return nil, fmt.Errorf("header %s is given twice", canonical)
		}
		headers[canonical] = strings.Trim(value, " \t")
	}
	return headers, nil
}

// notToken reports whether a character cannot be part of the name of a header.
func notToken(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
}

// answerRequest explains which backends answer the request.
func (o *planOptions) answerRequest(ctx context.Context, in io.Reader, args []string, out, log io.Writer) error {
	answers, err := o.explainRequest(ctx, in, args, log)
	if err != nil {
		if o.output == "json" {
			return errors.Join(err, dryrun.WriteJSON(out, &answer{Error: err.Error()}))
		}
		return err
	}
	if o.output == "json" {
		err = dryrun.WriteJSON(out, answers.jsonDocument())
	} else {
		answers.printAll(out)
	}
	return errors.Join(err, answers.answerError())
}

func (o *planOptions) explainRequest(ctx context.Context, in io.Reader, args []string, log io.Writer) (answers, error) {
	request, port, err := o.request.parseRequest(args)
	if err != nil {
		return nil, err
	}
	objects, err := o.routingObjects(ctx, in, log)
	if err != nil {
		return nil, err
	}
	routes, err := semantics.FromObjects(objects)
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	entrances, err := routes.EntrancesFor(request.Host)
	if err != nil {
		return nil, err
	}
	entrances = slices.DeleteFunc(entrances, func(e semantics.Entrance) bool { return !o.request.selectsEntrance(e) })
	var list answers
	for _, e := range entrances {
		request.Entrance = e
		if routes.HasListener(e.Gateway, port) { // if not, the port is that of a proxy in front of it, and all listeners count
			request.Entrance.Port = port
		}
		list = append(list, newAnswer(routes.ExplainRequest(request)))
	}
	if len(list) == 0 {
		list = answers{o.request.noEntranceAnswer(request.Host)}
	}
	return list, nil
}

// selectsEntrance reports whether the flags select an entrance, by its name or by its text in answers.
func (o *requestOptions) selectsEntrance(e semantics.Entrance) bool {
	gateway := ""
	if e.Gateway.Name != "" {
		gateway = e.Gateway.String()
	}
	return o.entrance == "" || slices.Contains([]string{e.String(), gateway, e.IngressClass, e.IstioGateway}, o.entrance)
}

// routeKinds are the kinds that route requests.
var routeKinds = []schema.GroupVersionResource{render.HTTPRoutes, render.Ingresses, render.VirtualServices, render.Middlewares}

// routingObjects returns the objects that route requests.
func (o *planOptions) routingObjects(ctx context.Context, in io.Reader, log io.Writer) ([]*unstructured.Unstructured, error) {
	if len(o.files) > 0 {
		return o.plannedObjects(ctx, in, nil, log)
	}
	client, err := o.kube.newClient("plan")
	if err != nil {
		return nil, err
	}
	resources := slices.Clone(routeKinds)
	for _, k := range informers.Declare(o.sources.Kinds).EnabledKinds() {
		if slices.Contains([]string{"Gateway", "IngressClass", "Namespace"}, k.Name) {
			resources = append(resources, k.Resource)
		}
	}
	existing, err := dryrun.List(ctx, client, resources, "")
	if err != nil {
		return nil, err
	}
	existing.Print(log)
	if !o.request.planned {
		return existing.Objects, nil
	}
	return o.plannedObjects(ctx, in, existing, log)
}

// plannedObjects replaces the objects of the program among existing objects with the planned objects. existing may be nil: the objects that
// plans depend on.
func (o *planOptions) plannedObjects(ctx context.Context, in io.Reader, existing *dryrun.World, log io.Writer,
) ([]*unstructured.Unstructured, error) {
	w, err := o.readObjects(ctx, in, log)
	if err != nil {
		return nil, err
	}
	p, err := o.sources.newPlanner(w, log)
	if err != nil {
		return nil, err
	}
	return p.replaceObjects(cmp.Or(existing, w).Objects), nil
}
