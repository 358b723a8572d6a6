// Ocilb emulates OCI Load Balancers: see package ocilb.
package main

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/deploy/emulators/internal/cli"
	"fairlead.dev/deploy/emulators/ocilb"
)

func main() { cli.Main("ocilb", run) }

func run(ctx context.Context, args []string) error {
	o := ocilb.DefaultOptions()
	fs := pflag.NewFlagSet("ocilb", pflag.ContinueOnError)
	port := fs.Int("port", 8080, "Port of the API.")
	modes := fs.String("modes", "", "Modes that differ from the default, as JSON: see GET /_emu/modes.")
	keys := fs.StringToString("key", nil, "Public keys of callers: <key id>=<PEM file>. Without keys, signatures are not verified.")
	balancers := fs.StringSlice("load-balancer", nil, "OCIDs of load balancers that exist at the start.")
	compartment := fs.String("compartment", "ocid1.compartment.oc1..emulator", "Compartment of these load balancers.")
	fs.Uint64Var(&o.Seed, "seed", o.Seed, "Seed of latencies and faults.")
	host := fs.String("listen-host", "", "Address at which listeners listen, each with its own port. Empty: all addresses.")
	if done, err := cli.Parse(fs, args, os.Stdout); done {
		return err
	}
	if *modes != "" {
		if err := o.Modes.Parse([]byte(*modes)); err != nil {
			return fmt.Errorf("parse --modes: %w", err)
		}
	}
	for id, file := range *keys {
		key, err := readKey(file)
		if err != nil {
			return err
		}
		if o.Keys == nil {
			o.Keys = map[string]*rsa.PublicKey{}
		}
		o.Keys[id] = key
	}
	var lc net.ListenConfig
	o.Plane.Listen = func(_ string, port int) (net.Listener, error) {
		return lc.Listen(ctx, "tcp", net.JoinHostPort(*host, fmt.Sprint(port)))
	}
	e := ocilb.New(o)
	defer e.Close()
	for _, id := range *balancers {
		e.Create(id, *compartment, id)
	}
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", *port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return serve(ctx, l, e)
}

// readKey reads a public key.
func readKey(file string) (*rsa.PublicKey, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s has no PEM block", file)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse key of %s: %w", file, err)
	}
	public, ok := key.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%s has a key of type %T: give an RSA key", file, key)
	}
	return public, nil
}

// serve serves the API until ctx ends. It does not wait for requests that hang.
func serve(ctx context.Context, l net.Listener, e *ocilb.Emulator) error {
	server := &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() {
		e.Close()
		_ = server.Close()
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}
