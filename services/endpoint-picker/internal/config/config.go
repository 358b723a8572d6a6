// Package config has everything that can be set about the picker: one struct, its defaults, its flags, and the rules
// that values must keep.
package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/extproc"
	"fairlead.dev/services/endpoint-picker/internal/informers"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
)

// Names of the flags that messages name.
const (
	FlagGRPCPort       = "grpc-port"
	FlagGRPCHealthPort = "grpc-health-port"

	flagPoolName        = "pool-name"
	flagPoolNamespace   = "pool-namespace"
	flagPoolGroup       = "pool-group"
	flagSecureServing   = "secure-serving"
	flagCertPath        = "cert-path"
	flagBodyMode        = "body-mode"
	flagMaxRequestBody  = "max-request-body"
	flagReportEndpoint  = "report-endpoint"
	flagNoSubsetFilter  = "disable-endpoint-subset-filter"
	flagRefreshInterval = "refresh-metrics-interval"
	flagRefreshTimeout  = "refresh-metrics-timeout"
	flagStaleness       = "metrics-staleness-threshold"
	flagLeaseTimeout    = "lease-timeout"
	flagDrainDelay      = "drain-delay"
	flagDrainTimeout    = "drain-timeout"
)

const (
	namespaceVariable = "NAMESPACE"
	maxPort           = 65535
	minInterval       = 10 * time.Millisecond
	minBody           = 1 << 10
	maxBody           = 1 << 30
)

// A Command is what the process is to do.
type Command string

// The commands. The graph, of how parts depend on each other, is for developers.
const (
	CommandServe   Command = ""
	CommandVersion Command = "version"
	CommandGraph   Command = "graph"
)

// Config is everything that can be set.
type Config struct {
	Command   Command
	Logging   logging.Options
	Kube      kube.Options
	HTTP      httpserver.Options
	Pool      Pool
	GRPC      GRPC
	ExtProc   ExtProc
	Scraping  modelserver.Options
	Drain     Drain
	Telemetry Telemetry
}

// Pool says which InferencePool is served.
type Pool struct {
	Group string
	Name  cache.ObjectName
}

// GRPC says where gateways and health checks connect, and how.
type GRPC struct {
	Port       int
	HealthPort int
	Secure     bool
	CertPath   string
}

// ExtProc says how streams are answered.
type ExtProc struct {
	BodyMode       extproc.BodyMode
	MaxRequestBody Size
	ReportEndpoint bool
	IgnoreSubset   bool
}

// Drain says how long the picker stays after it was told to end. Both zero: it ends at once.
type Drain struct {
	Delay   time.Duration // unready, and still accepting requests
	Timeout time.Duration // accepting nothing, and finishing what is open
}

// Default returns what holds without flags.
func Default() *Config {
	return &Config{
		Logging:   logging.DefaultOptions(),
		Kube:      kube.DefaultOptions(),
		HTTP:      httpserver.DefaultOptions(),
		Pool:      Pool{Group: informers.PoolGroup, Name: cache.NewObjectName(namespace(), "")},
		GRPC:      GRPC{Port: 9002, HealthPort: 9003, Secure: true},
		ExtProc:   ExtProc{BodyMode: extproc.FullDuplex, MaxRequestBody: 32 << 20},
		Scraping:  modelserver.DefaultOptions(),
		Drain:     Drain{Delay: 5 * time.Second, Timeout: 2 * time.Minute},
		Telemetry: Telemetry{Tracing: true},
	}
}

// Parse reads the command line. Help goes to w; after help the error is pflag.ErrHelp. Whatever is wrong is said with
// how to mend it.
func Parse(args []string, w io.Writer) (*Config, error) {
	c := Default()
	fs := pflag.NewFlagSet("endpoint-picker", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(w)
	c.AddFlags(fs)
	showVersion := fs.Bool("version", false, "Print the version and exit.")
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w: see --help", err)
	}
	switch {
	case *showVersion:
		c.Command = CommandVersion
		return c, nil
	case fs.NArg() == 1 && fs.Arg(0) == string(CommandGraph):
		c.Command = CommandGraph
		return c, nil
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q: all settings are flags, see --help", fs.Arg(0))
	}
	return c, c.Validate()
}

// AddFlags binds the configuration to its flags.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Logging.AddFlags(fs)
	c.Kube.AddFlags(fs)
	c.HTTP.AddFlags(fs)

	fs.StringVar(&c.Pool.Name.Name, flagPoolName, c.Pool.Name.Name, "Name of the InferencePool whose endpoints are picked. Required.")
	fs.StringVar(&c.Pool.Name.Namespace, flagPoolNamespace, c.Pool.Name.Namespace,
		"Namespace of the InferencePool and its pods. By default $NAMESPACE, or else default.")
	fs.StringVar(&c.Pool.Group, flagPoolGroup, c.Pool.Group, "API group of the InferencePool.")

	fs.IntVar(&c.GRPC.Port, FlagGRPCPort, c.GRPC.Port, "Port where gateways connect (ext_proc).")
	fs.IntVar(&c.GRPC.HealthPort, FlagGRPCHealthPort, c.GRPC.HealthPort, "Port of gRPC health checks.")
	fs.BoolVar(&c.GRPC.Secure, flagSecureServing, c.GRPC.Secure, "Serve gateways over TLS.")
	fs.StringVar(&c.GRPC.CertPath, flagCertPath, c.GRPC.CertPath, "Folder of tls.crt and tls.key. Empty: a self-signed certificate is made.")

	fs.Var(&c.ExtProc.BodyMode, flagBodyMode,
		"How gateways send bodies that do not tell it (protocol_config): full-duplex, streamed, buffered or none.")
	fs.Var(&c.ExtProc.MaxRequestBody, flagMaxRequestBody, "Largest request body; a larger one is answered 413.")
	fs.BoolVar(&c.ExtProc.ReportEndpoint, flagReportEndpoint, c.ExtProc.ReportEndpoint,
		"Name the picked endpoint in the response header x-fairlead-picked-endpoint.")
	fs.BoolVar(&c.ExtProc.IgnoreSubset, flagNoSubsetFilter, c.ExtProc.IgnoreSubset, "Ignore the gateway's hint of which endpoints may be picked.")

	fs.DurationVar(&c.Scraping.Interval, flagRefreshInterval, c.Scraping.Interval, "Time between two scrapes of a model server's metrics.")
	fs.DurationVar(&c.Scraping.Timeout, flagRefreshTimeout, c.Scraping.Timeout, "Time that one scrape may take.")
	fs.DurationVar(&c.Scraping.StaleAfter, flagStaleness, c.Scraping.StaleAfter,
		"Time without a good scrape after which other endpoints are preferred.")
	fs.DurationVar(&c.Scraping.LeaseTimeout, flagLeaseTimeout, c.Scraping.LeaseTimeout,
		"Time for which a request counts on its endpoint when its stream ended early and no scrape comes.")

	fs.DurationVar(&c.Drain.Delay, flagDrainDelay, c.Drain.Delay,
		"Time after SIGTERM in which the picker is unready and still accepts requests, for the news to spread.")
	fs.DurationVar(&c.Drain.Timeout, flagDrainTimeout, c.Drain.Timeout,
		"Time after that in which requests may finish; longer ones are cut. Choose it above the longest response.")

	c.Telemetry.addFlags(fs)
}

// Validate returns what is wrong, all of it, and how to mend it.
func (c *Config) Validate() error {
	return errors.Join(
		c.Logging.Validate(),
		c.Kube.Validate(),
		c.HTTP.Validate(),
		c.Pool.validate(),
		c.GRPC.validate(),
		c.ExtProc.validate(),
		validateScraping(c.Scraping),
		c.Drain.validate(),
		c.Telemetry.validate(),
	)
}

func (p Pool) validate() error {
	switch {
	case p.Name.Name == "":
		return fmt.Errorf("--%s is missing: give the name of the InferencePool to serve", flagPoolName)
	case p.Name.Namespace == "":
		return fmt.Errorf("--%s is empty: give the namespace of the InferencePool, or leave the flag out", flagPoolNamespace)
	case p.Group != informers.PoolGroup:
		return fmt.Errorf("--%s %q is not served: only %s is, leave the flag out", flagPoolGroup, p.Group, informers.PoolGroup)
	}
	return nil
}

func (g GRPC) validate() error {
	switch {
	case g.Port < 0 || g.Port > maxPort:
		return fmt.Errorf("--%s %d is not a port: give one from 1 to %d", FlagGRPCPort, g.Port, maxPort)
	case g.HealthPort < 0 || g.HealthPort > maxPort:
		return fmt.Errorf("--%s %d is not a port: give one from 1 to %d", FlagGRPCHealthPort, g.HealthPort, maxPort)
	case g.Port == g.HealthPort && g.Port != 0:
		return fmt.Errorf("--%s and --%s are both %d: give each its own", FlagGRPCPort, FlagGRPCHealthPort, g.Port)
	case g.CertPath != "" && !g.Secure:
		return fmt.Errorf("--%s has no use with --%s=false: leave one of them out", flagCertPath, flagSecureServing)
	}
	return nil
}

func (e ExtProc) validate() error {
	if e.MaxRequestBody < minBody || e.MaxRequestBody > maxBody {
		return fmt.Errorf("--%s %s is out of range: give 1Ki to 1Gi", flagMaxRequestBody, e.MaxRequestBody.String())
	}
	return nil
}

func validateScraping(o modelserver.Options) error {
	switch {
	case o.Interval < minInterval:
		return fmt.Errorf("--%s %s is too short: give at least %s", flagRefreshInterval, o.Interval, minInterval)
	case o.Timeout <= 0:
		return fmt.Errorf("--%s %s is not a time: give 1s, for instance", flagRefreshTimeout, o.Timeout)
	case o.StaleAfter < 2*o.Interval:
		return fmt.Errorf("--%s %s is too short: give at least twice --%s, which is %s", flagStaleness, o.StaleAfter, flagRefreshInterval, o.Interval)
	case o.LeaseTimeout < o.Interval:
		return fmt.Errorf("--%s %s is too short: give at least --%s, which is %s", flagLeaseTimeout, o.LeaseTimeout, flagRefreshInterval, o.Interval)
	}
	return nil
}

func (d Drain) validate() error {
	switch {
	case d.Delay < 0:
		return fmt.Errorf("--%s %s is negative: give 0 to leave it out", flagDrainDelay, d.Delay)
	case d.Timeout < 0:
		return fmt.Errorf("--%s %s is negative: give 0 to end requests at once", flagDrainTimeout, d.Timeout)
	}
	return nil
}

func namespace() string {
	if n := os.Getenv(namespaceVariable); n != "" {
		return n
	}
	return "default"
}
