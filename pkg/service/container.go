package service

import (
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/dig"
)

// newContainer returns a container with constructors.
func newContainer(constructors []any, opts ...dig.Option) (*dig.Container, error) {
	c := dig.New(opts...)
	for _, constructor := range constructors {
		if err := c.Provide(constructor); err != nil {
			return nil, fmt.Errorf("provide to container: %w", err)
		}
	}
	return c, nil
}

// Assemble creates the fields of Parts, which embeds dig.In, and what they need. It starts none of them.
func Assemble[Parts any](constructors []any) (*Parts, error) {
	c, err := newContainer(constructors)
	if err != nil {
		return nil, err
	}
	var parts Parts
	if err := c.Invoke(func(p Parts) { parts = p }); err != nil {
		return nil, dig.RootCause(err)
	}
	return &parts, nil
}

// CheckAssembly returns an error if constructors are missing, ambiguous or circular. It calls none.
func CheckAssembly[Parts any](constructors []any) error {
	c, err := newContainer(constructors, dig.DryRun(true))
	if err != nil {
		return err
	}
	if err := c.Invoke(func(Parts) {}); err != nil {
		return fmt.Errorf("assemble: %w", err)
	}
	return nil
}

// PrintGraph writes the dependencies between the parts in the format of Graphviz.
func PrintGraph(w io.Writer, constructors []any) error {
	c, err := newContainer(constructors)
	if err != nil {
		return err
	}
	if err := dig.Visualize(c, w); err != nil {
		return fmt.Errorf("draw container: %w", err)
	}
	return nil
}

// Owner returns the name under which a service owns fields and its Lease, and calls the API server.
func Owner(name string) string { return "fairlead-" + name }

// NewRegistry returns a registry with the metrics of the Go runtime and of the process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
