// Ome emulates OME's controller: see package ome. It can print the CRDs and OME's ConfigMap.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/internal/cli"
	"fairlead.dev/deploy/emulators/ome"
	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/version"
)

func main() { cli.Main("ome", run) }

// settings are the values of all flags.
type settings struct {
	ome     ome.Options
	kube    kube.Options
	http    httpserver.Options
	logging logging.Options

	printManifests bool
}

func defaults() settings {
	return settings{
		ome: ome.DefaultOptions(), kube: kube.DefaultOptions(), http: httpserver.DefaultOptions(), logging: logging.DefaultOptions(),
	}
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	s.ome.AddFlags(fs)
	s.kube.AddFlags(fs)
	s.http.AddFlags(fs)
	s.logging.AddFlags(fs)
	fs.BoolVar(&s.printManifests, "print-manifests", false, "Print the CRDs and OME's ConfigMap of the release, for kubectl apply, and exit.")
}

func (s *settings) validate() error {
	return errors.Join(s.ome.Validate(), s.kube.Validate(), s.http.Validate(), s.logging.Validate())
}

func run(ctx context.Context, args []string) error {
	s := defaults()
	fs := pflag.NewFlagSet("ome", pflag.ContinueOnError)
	s.addFlags(fs)
	if done, err := cli.Parse(fs, args, os.Stdout); done {
		return err
	}
	if err := s.validate(); err != nil {
		return err
	}
	if s.printManifests {
		fmt.Printf("%s---\n%s", ome.CRDs(s.ome.Release), ome.Config(s.ome.Release))
		return nil
	}
	log, err := logging.New(s.logging, os.Stderr)
	if err != nil {
		return err
	}
	logging.BridgeKlog(log)
	return serve(ctx, s, log)
}

// serve runs the emulator and the server of health and metrics. The server stops last.
func serve(ctx context.Context, s settings, log *zap.Logger) error {
	config, err := s.kube.RESTConfig("ome-emulator/" + version.String())
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	emulator, err := ome.New(ome.Params{Options: s.ome, Config: config, Log: log, Registry: registry})
	if err != nil {
		return err
	}
	server := httpserver.New(httpserver.Params{Options: s.http, Log: log, Gatherer: registry, Ready: []httpserver.Check{{
		Name: "caches", Probe: func(context.Context) error {
			if !emulator.Synced() {
				return errors.New("caches have not synced yet")
			}
			return nil
		},
	}}})
	if err := server.Listen(); err != nil {
		return err
	}
	log.Info("Started OME emulator", zap.String("release", string(s.ome.Release)), zap.String(logging.KeyVersion, version.String()))
	return runBoth(ctx, emulator, server)
}

// runner runs until its context ends.
type runner interface {
	Run(ctx context.Context) error
}

// runBoth runs work until ctx ends, and server until work has stopped. If one of them fails, the other stops.
func runBoth(ctx context.Context, work, server runner) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- server.Run(serving)
	}()
	err := work.Run(ctx)
	stopServing()
	return errors.Join(err, <-served)
}
