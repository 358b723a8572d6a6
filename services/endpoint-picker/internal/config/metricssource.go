package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
)

// Flags of the metrics pages of model servers, as the Inference Extension had them. They are defaults of the parameters of the plugin
// metrics-data-source.
const (
	flagSourcePort   = "model-server-metrics-port"
	flagSourceScheme = "model-server-metrics-scheme"
	flagSourcePath   = "model-server-metrics-path"
	flagSourceSkip   = "model-server-metrics-https-insecure-skip-verify"

	usualSourcePath = "/metrics" // what charts give, and no engine's own path changes for
)

func addSourceFlags(fs *pflag.FlagSet) {
	fs.Int(flagSourcePort, 0, "Port of the metrics pages of model servers. 0: that of the engine, such as 8002 for Triton, or else that "+
		"of requests. The port of the configuration, and those of endpoints, take precedence.")
	fs.String(flagSourceScheme, modelserver.DefaultSettings().Source.Scheme,
		"Scheme of the metrics pages: http or https. That of the configuration takes precedence.")
	fs.String(flagSourcePath, usualSourcePath,
		"Path of the metrics pages, if it is not that of the engine. That of the configuration takes precedence.")
	fs.Bool(flagSourceSkip, true, "Accept any certificate of metrics pages. The setting of the configuration takes precedence.")
}

// applySource applies the values of these flags.
func (c *Config) applySource(fs *pflag.FlagSet) error {
	port, _ := fs.GetInt(flagSourcePort) // addSourceFlags made it an int
	skip, _ := fs.GetBool(flagSourceSkip)
	s := &c.MetricsSource
	s.Scheme = fs.Lookup(flagSourceScheme).Value.String()
	if path := strings.Trim(fs.Lookup(flagSourcePath).Value.String(), `"`); path != usualSourcePath { // a chart gives quotes
		s.Path = path
	}
	if port != 0 {
		s.Port = &port
	}
	if !skip {
		s.InsecureSkipVerify = &skip
	}
	var checker strictyaml.Checker
	s.Validate(&checker)
	if err := checker.AllProblems(); err != nil {
		return fmt.Errorf("--model-server-metrics-*: %w", err)
	}
	return nil
}
