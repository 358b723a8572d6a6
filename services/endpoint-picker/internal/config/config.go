// Package config contains the configuration of the picker: one struct, its defaults, its flags and their validation.
package config

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/listener/extproc"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// Names of flags in messages.
const (
	FlagGRPCPort       = "grpc-port"
	FlagGRPCHealthPort = "grpc-health-port"

	flagSecureServing   = "secure-serving"
	flagCertPath        = "cert-path"
	flagClientCA        = "client-ca-file"
	flagClientName      = "client-name"
	flagMaxRequestBody  = "max-request-body"
	flagMaxBuffered     = "max-buffered-bytes"
	flagMaxStreams      = "max-streams"
	flagBodyTimeout     = "request-body-timeout"
	flagIdleTimeout     = "stream-idle-timeout"
	flagEarlyClose      = "early-close"
	flagEjectAfter      = "eject-after"
	flagEjectionTime    = "ejection-time"
	flagEjectionLongest = "ejection-time-max"
	flagDrainDelay      = "drain-delay"
	flagDrainTimeout    = "drain-timeout"
)

const (
	maxPort = 65535
	minBody = 1 << 10
	maxBody = 1 << 30
)

// Config contains all settings.
type Config struct {
	Logging       logging.Options
	Kube          kube.Options
	HTTP          httpserver.Options
	Pool          Pool
	GRPC          GRPC
	ExtProc       ExtProc
	Decision      Decision
	Proxy         Proxy
	Scraping      modelserver.Options
	MetricsSource modelserver.Source // where the configuration of the plugins does not set it
	DefaultEngine string             // of model servers, where the configuration of the plugins does not set it; empty: vLLM
	Outliers      pool.DetectorOptions
	Leases        Leases
	Plugins       Plugins
	Prefixes      Prefixes
	Replicas      Replicas
	Drain         Drain
	TLS           TLS
	Metrics       MetricsEndpoint
	Messages      Messages
	Telemetry     Telemetry
	Recording     Recording

	AddressFile string // to write the addresses of the listeners to; empty: none

	Unused []UnusedFlag // flags that have no effect
}

// GRPC configures the servers for gateways and health checks.
type GRPC struct {
	Port       int
	HealthPort int
	// Closed and HealthClosed close these ports, which nobody has asked for.
	Closed, HealthClosed bool
	Secure               bool
	CertPath             string
	// ClientCAFile contains the authorities of required client certificates, and ClientNames the accepted names.
	ClientCAFile string
	ClientNames  []string
}

// ExtProc configures the handling of streams.
type ExtProc struct {
	BodyMode       extproc.BodyMode
	MaxRequestBody Size
	MaxBuffered    Size
	MaxStreams     int
	BodyTimeout    time.Duration
	IdleTimeout    time.Duration
	ReportEndpoint bool
	IgnoreSubset   bool
	LeaveEarly     bool
	EmitScores     bool
	Explain        bool
}

// Leases configures the requests in flight that count as load.
type Leases struct {
	Timeout time.Duration // of a lease whose stream ended early, if no sample contains its request
}

// Drain configures the time from SIGTERM to the exit. Both zero: the process exits at once.
type Drain struct {
	Delay   time.Duration // unready, but accepting requests
	Timeout time.Duration // finishing open requests, accepting none
}

// Default returns the configuration without flags.
func Default() *Config {
	return &Config{
		Logging: logging.DefaultOptions(),
		Kube:    kube.DefaultOptions(),
		HTTP:    httpserver.DefaultOptions(),
		Pool:    defaultPool(),
		GRPC:    GRPC{Port: 9002, HealthPort: 9003, Secure: true},
		ExtProc: ExtProc{
			BodyMode: extproc.FullDuplex, MaxRequestBody: 32 << 20, MaxBuffered: 256 << 20, MaxStreams: 32 << 10, BodyTimeout: time.Minute,
			IdleTimeout: time.Hour,
		},
		Decision:      Decision{Timeout: 10 * time.Minute},
		Proxy:         Proxy{MaxServerConns: defaultServerConns, MaxAttempts: defaultAttempts},
		Scraping:      modelserver.DefaultOptions(),
		MetricsSource: modelserver.DefaultSettings().Source,
		Outliers:      pool.DefaultDetectorOptions(),
		Leases:        Leases{Timeout: time.Minute},
		Prefixes:      Prefixes{MaxBytes: prefixindex.DefaultMaxBytes},
		Replicas:      Replicas{BindAddress: ":9004"},
		Drain:         Drain{Delay: 5 * time.Second, Timeout: 2 * time.Minute},
		TLS:           TLS{Reload: true, ReloadEvery: 10 * time.Second, MinVersion: "VersionTLS12"},
		Metrics:       MetricsEndpoint{Auth: true},
		Telemetry:     Telemetry{Tracing: true},
		Recording:     Recording{MaxBytes: 256 << 20},
	}
}

// Complete applies what depends on several flags, after they were parsed. It returns all problems with their fixes.
func (c *Config) Complete(fs *pflag.FlagSet) error {
	c.Pool.addNamespaces()
	if servers := &c.Pool.Servers; fs.Changed(flagServers) && len(servers.URLs) == 0 {
		servers.URLs = []string{""} // a URL that is missing
	}
	c.Metrics.flagGiven = fs.Changed(flagMetricsAuth)
	if c.Pool.IsLocal() && !c.Metrics.flagGiven {
		c.Metrics.Auth = false // no API server to ask
	}
	if len(c.Pool.Servers.URLs) > 0 && (c.Proxy.Address != "" || c.Decision.IsEnabled()) {
		c.GRPC.closeUnasked(fs)
	}
	return errors.Join(c.applyUpstreamFlags(fs), c.Pool.Servers.validateSourceFlags(fs), c.Validate())
}

// AddFlags binds the configuration to its flags.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Pool.Servers.addFlags(fs)
	c.Proxy.addFlags(fs)
	c.Pool.addFlags(fs)

	c.Logging.AddFlags(fs)
	c.HTTP.AddFlags(fs)
	c.Kube.AddFlags(fs)

	fs.IntVar(&c.GRPC.Port, FlagGRPCPort, c.GRPC.Port, "Port of the ext_proc server, for gateways. 0: any free port.")
	fs.IntVar(&c.GRPC.HealthPort, FlagGRPCHealthPort, c.GRPC.HealthPort, "Port of the gRPC health server. 0: any free port.")
	fs.BoolVar(&c.GRPC.Secure, flagSecureServing, c.GRPC.Secure, "Serve ext_proc over TLS.")
	fs.StringVar(&c.GRPC.CertPath, flagCertPath, c.GRPC.CertPath,
		"Folder with tls.crt and tls.key. Empty: generate a self-signed certificate.")
	fs.StringVar(&c.GRPC.ClientCAFile, flagClientCA, c.GRPC.ClientCAFile,
		"PEM file with certificate authorities. Gateways need a client certificate from one of them. Empty: they need none.")
	fs.StringSliceVar(&c.GRPC.ClientNames, flagClientName, c.GRPC.ClientNames,
		"A name that the client certificate of a gateway must have: "+
			"a DNS name or a URI such as a SPIFFE ID, or the common name of a certificate with neither. Repeat the flag for several; any of "+
			"them is enough.")

	c.ExtProc.addFlags(fs)

	addScrapingFlags(fs, &c.Scraping)
	addSourceFlags(fs)
	fs.DurationVar(&c.Leases.Timeout, flagLeaseTimeout, c.Leases.Timeout,
		"Time that a request counts as load of its endpoint if its stream ended early and no scrape succeeds.")

	fs.IntVar(&c.Outliers.Failures, flagEjectAfter, c.Outliers.Failures,
		"Number of failed requests without an answer in between after which an endpoint is ejected. 0: no ejection at all.")
	fs.DurationVar(&c.Outliers.BaseEjection, flagEjectionTime, c.Outliers.BaseEjection,
		"Time until one request probes an ejected endpoint. It doubles after each failed probe.")
	fs.DurationVar(&c.Outliers.MaxEjection, flagEjectionLongest, c.Outliers.MaxEjection,
		"Maximum time until the next probe of an ejected endpoint.")

	c.Decision.addFlags(fs)

	c.Plugins.addFlags(fs)
	c.Prefixes.addFlags(fs)

	c.Replicas.addFlags(fs)

	fs.DurationVar(&c.Drain.Delay, flagDrainDelay, c.Drain.Delay,
		"Time after SIGTERM in which the picker is unready but still accepts requests, until gateways have noticed.")
	fs.DurationVar(&c.Drain.Timeout, flagDrainTimeout, c.Drain.Timeout,
		"Time after the drain delay for open requests to finish. Longer requests are cut: set it above the duration of the longest "+
			"response.")

	c.TLS.addFlags(fs)
	c.Metrics.addFlags(fs)
	c.Messages.addFlags(fs)
	c.Telemetry.addFlags(fs)
	c.Recording.addFlags(fs)
	fs.StringVar(&c.AddressFile, "address-file", c.AddressFile,
		"File to write the addresses of all listeners to, as JSON by their names, for programs that start this one with port 0. Empty: "+
			"none.")
	addUpstreamFlags(fs)
	acceptCamelFlags(fs)
}

func (e *ExtProc) addFlags(fs *pflag.FlagSet) {
	fs.Var(&e.BodyMode, "body-mode",
		"Body mode assumed for gateways that do not send protocol_config: full-duplex, streamed, buffered or none.")
	fs.Var(&e.MaxRequestBody, flagMaxRequestBody, "Maximum size of a request body. Larger requests get 413.")
	fs.Var(&e.MaxBuffered, flagMaxBuffered,
		"Maximum total size of requests, unread replies and open picks in memory, of all listeners. Beyond it, gateways and clients with "+
			"more than their share get 429.")
	fs.IntVar(&e.MaxStreams, flagMaxStreams, e.MaxStreams,
		"Maximum number of open requests of all listeners, and of picks without an outcome. Beyond it, gateways and clients with more "+
			"than their share get 429.")
	fs.DurationVar(&e.BodyTimeout, flagBodyTimeout, e.BodyTimeout,
		"Maximum time to receive the headers of a request, and to receive its body. Slower requests get 408, and their memory is freed.")
	fs.DurationVar(&e.IdleTimeout, flagIdleTimeout, e.IdleTimeout,
		"Maximum time without a message of a gateway after the pick, or without a byte of a model server at the proxy listener. Set it "+
			"above the longest time that a model server is silent. 0 means no limit.")
	fs.BoolVar(&e.LeaveEarly, flagEarlyClose, e.LeaveEarly,
		"End each stream after the pick. This costs less CPU, but the picker sees no response: it learns no speeds and detects no failing "+
			"endpoints.")
	fs.BoolVar(&e.ReportEndpoint, "report-endpoint", e.ReportEndpoint,
		"Add the picked endpoint to responses, in the header x-fairlead-picked-endpoint.")
	fs.BoolVar(&e.EmitScores, "emit-endpoint-scores", e.EmitScores,
		"Send the scores of the endpoints to the gateway, in the metadata x-gateway-destination-endpoint-scores.")
	fs.BoolVar(&e.Explain, "explain", e.Explain,
		"Explain the pick to clients, in the response header x-fairlead-pick-explained. The header contains addresses of pods.")
	fs.BoolVar(&e.IgnoreSubset, "disable-endpoint-subset-filter", e.IgnoreSubset,
		"Ignore the subset of endpoints that the gateway allows (envoy.lb.subset_hint).")
}

// UseFile uses the endpoints of a file that the configuration of the plugins names.
func (c *Config) UseFile(path string, once bool) error {
	c.Pool.File, c.Pool.Once, c.Pool.Discovered = path, once, true
	c.Metrics.Auth = c.Metrics.Auth && c.Metrics.flagGiven
	return c.Metrics.validateFlags(c.Pool)
}

// Validate returns all problems with their fixes.
func (c *Config) Validate() error {
	return errors.Join(
		c.Logging.Validate(),
		c.Kube.Validate(),
		c.HTTP.Validate(),
		c.Pool.validateFlags(c.Plugins),
		c.GRPC.validateFlags(),
		c.ExtProc.validateFlags(),
		c.Decision.validateFlags(c.GRPC),
		c.Proxy.validateFlags(c.GRPC),
		validateScraping(c.Scraping),
		c.Leases.validateFlags(c.Scraping),
		validateOutliers(c.Outliers),
		c.Plugins.validateFlags(),
		c.Prefixes.validateFlags(),
		c.Replicas.validateFlags(),
		c.Drain.validateFlags(),
		c.TLS.validateFlags(),
		c.Metrics.validateFlags(c.Pool),
		c.Messages.validateFlags(),
		c.Telemetry.validateFlags(),
		c.Recording.validateFlags(c.ExtProc),
	)
}

func (g GRPC) validateFlags() error {
	switch {
	case g.Port < 0 || g.Port > maxPort:
		return fmt.Errorf("--%s %d is not a port: give one from 1 to %d", FlagGRPCPort, g.Port, maxPort)
	case g.HealthPort < 0 || g.HealthPort > maxPort:
		return fmt.Errorf("--%s %d is not a port: give one from 1 to %d", FlagGRPCHealthPort, g.HealthPort, maxPort)
	case g.Port == g.HealthPort && g.Port != 0:
		return fmt.Errorf("--%s and --%s are both %d: give each its own", FlagGRPCPort, FlagGRPCHealthPort, g.Port)
	}
	return g.validateCertificates()
}

func (g GRPC) validateCertificates() error {
	for flag, path := range map[string]string{flagCertPath: g.CertPath, flagClientCA: g.ClientCAFile} {
		if path != "" && !g.Secure {
			return fmt.Errorf("--%s has no effect with --%s=false: leave one of them out", flag, flagSecureServing)
		}
	}
	switch {
	case len(g.ClientNames) > 0 && g.ClientCAFile == "":
		return fmt.Errorf("--%s has no effect without --%s: give both", flagClientName, flagClientCA)
	case slices.Contains(g.ClientNames, ""):
		return fmt.Errorf("--%s is empty: give a name, or leave the flag out", flagClientName)
	}
	return nil
}

// bodyCopies is the memory of a body while it is received and joined, in relation to its size.
const bodyCopies = 2

func (e ExtProc) validateFlags() error {
	switch {
	case e.MaxRequestBody < minBody || e.MaxRequestBody > maxBody:
		return fmt.Errorf("--%s %s is out of range: give 1Ki to 1Gi", flagMaxRequestBody, e.MaxRequestBody.String())
	case e.MaxBuffered < bodyCopies*e.MaxRequestBody:
		return fmt.Errorf("--%s %s is too small: give at least twice --%s, which is %s", flagMaxBuffered, e.MaxBuffered.String(),
			flagMaxRequestBody, e.MaxRequestBody.String())
	case e.MaxStreams < 1:
		return fmt.Errorf("--%s %d is too few: give at least 1", flagMaxStreams, e.MaxStreams)
	case e.BodyTimeout < time.Second:
		return fmt.Errorf("--%s %s is too short: give at least 1s", flagBodyTimeout, e.BodyTimeout)
	case e.IdleTimeout != 0 && e.IdleTimeout < time.Second:
		return fmt.Errorf("--%s %s is too short: give at least 1s, or 0 for no limit", flagIdleTimeout, e.IdleTimeout)
	}
	return nil
}

// memoryShare is the part of the process's memory that gateways and clients of all listeners may hold, as a divisor. With all of it in
// use, the collector finds next to nothing to free, and takes half of the processors while it looks. At a third, small containers refuse
// bodies for which they have room.
const memoryShare = 2

// FitMemory lowers the limits to a process with the soft memory limit given, so that it refuses bodies instead of collecting garbage
// without end. It reports whether it lowered any.
func (e *ExtProc) FitMemory(limit int64) bool {
	before := *e
	e.MaxBuffered = Size(min(int64(e.MaxBuffered), limit/memoryShare))
	e.MaxRequestBody = min(e.MaxRequestBody, e.MaxBuffered/bodyCopies)
	return *e != before
}

func validateOutliers(o pool.DetectorOptions) error {
	switch {
	case o.Failures < 0:
		return fmt.Errorf("--%s %d is negative: give 0 to disable ejection", flagEjectAfter, o.Failures)
	case o.BaseEjection <= 0:
		return fmt.Errorf("--%s %s is not positive: give a duration such as 1s", flagEjectionTime, o.BaseEjection)
	case o.MaxEjection < o.BaseEjection:
		return fmt.Errorf("--%s %s is too short: give at least --%s, which is %s", flagEjectionLongest, o.MaxEjection, flagEjectionTime,
			o.BaseEjection)
	}
	return nil
}

func (d Drain) validateFlags() error {
	switch {
	case d.Delay < 0:
		return fmt.Errorf("--%s %s is negative: give 0 for no delay", flagDrainDelay, d.Delay)
	case d.Timeout < 0:
		return fmt.Errorf("--%s %s is negative: give 0 to cut open requests at once", flagDrainTimeout, d.Timeout)
	}
	return nil
}
