// Command image builds OCI image layouts, pushes them to a registry and signs them. It needs no container engine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/deploy/images/internal/oci"
	"fairlead.dev/deploy/images/internal/registry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "image", Short: "Build OCI image layouts, push them and sign them", SilenceUsage: true, SilenceErrors: true}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(buildCommand(), pushCommand(), signCommand())
	return root
}

func buildCommand() *cobra.Command {
	var p oci.Params
	var binaries, files []string
	cmd := &cobra.Command{
		Use:   "build LAYOUT",
		Short: "Write an OCI layout with an image for each platform",
		Long: "Write an OCI layout with an image for each platform: CA certificates, users, /tmp and one static program.\n" +
			"$SOURCE_DATE_EPOCH is the time of creation, in seconds since 1970 (default 0).",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&p.Name, "name", "", "name, the last part of the repository (required)")
	f.StringArrayVar(&binaries, "binary", nil, "PLATFORM=FILE, such as linux/amd64=bin/app; repeatable (required)")
	f.StringVar(&p.Path, "path", "", "path of the binary in the image, which is the entrypoint (default /NAME)")
	f.StringArrayVar(&files, "file", nil, "FILE=/TARGET, a further file; repeatable")
	f.StringArrayVar(&p.Args, "arg", nil, "argument in the entrypoint, before those of a pod; repeatable")
	f.StringArrayVar(&p.Cmd, "cmd", nil, "default argument, which those of a pod replace; repeatable")
	f.StringArrayVar(&p.Env, "env", nil, "NAME=VALUE; repeatable")
	f.StringVar(&p.User, "user", fmt.Sprintf("%d:%[1]d", oci.Nonroot), "numeric user and group, or empty for root")
	f.StringVar(&p.Description, "description", "", "description")
	f.StringVar(&p.Version, "version", "dev", "version, the tag of the image")
	f.StringVar(&p.Revision, "revision", "", "commit")
	f.StringVar(&p.Source, "source", "", "URL of the source repository")
	f.StringVar(&p.Licenses, "licenses", "", "SPDX license expression")
	f.BoolVar(&p.Compress, "compress", true, "compress layers")
	f.BoolVar(&p.Attest, "attest", true, "attach an SBOM and the provenance; the binaries must be Go programs")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, b := range binaries {
			platform, file, ok := strings.Cut(b, "=")
			if !ok {
				return fmt.Errorf("--binary %q is not PLATFORM=FILE", b)
			}
			p.Binaries = append(p.Binaries, oci.Binary{Platform: platform, File: file})
		}
		for _, f := range files {
			source, target, ok := strings.Cut(f, "=")
			if !ok {
				return fmt.Errorf("--file %q is not FILE=/TARGET", f)
			}
			p.Files = append(p.Files, oci.File{Source: source, Target: target})
		}
		var err error
		if p.Created, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
			return err
		}
		index, err := oci.Build(args[0], p)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), index.Digest)
		return nil
	}
	return cmd
}

// sourceDate reads $SOURCE_DATE_EPOCH: https://reproducible-builds.org/specs/source-date-epoch.
func sourceDate(epoch string) (time.Time, error) {
	if epoch == "" {
		return time.Unix(0, 0), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: want seconds since 1970: %w", err)
	}
	return time.Unix(seconds, 0), nil
}

func pushCommand() *cobra.Command {
	var t registry.Target
	cmd := &cobra.Command{
		Use:   "push LAYOUT...",
		Short: "Push layouts with their SBOMs and provenance, and print the references",
		Args:  cobra.MinimumNArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&t.Registry, "registry", "", "HOST/PATH that the names of images are appended to (required)")
	f.StringVar(&t.Version, "version", "", "version that the images must have (default: the version of each)")
	f.BoolVar(&t.Latest, "latest", false, "tag as latest too")
	f.BoolVar(&t.Insecure, "insecure", false, "allow plain HTTP beyond loopback")
	_ = cmd.MarkFlagRequired("registry") // the flag exists
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, dir := range args {
			reference, err := registry.Push(cmd.Context(), t, dir)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), reference)
		}
		return nil
	}
	return cmd
}

// The variables of cosign.
const (
	keyVariable      = "COSIGN_PRIVATE_KEY"
	passwordVariable = "COSIGN_PASSWORD"
)

func signCommand() *cobra.Command {
	var insecure bool
	var publicKey string
	cmd := &cobra.Command{
		Use:   "sign [REFERENCE@DIGEST...]",
		Short: "Sign images and charts in a registry",
		Long: "Sign images and charts in a registry, for `cosign verify --key`. Without references, only check the key.\n" +
			"$" + keyVariable + " is the private key in PEM, or the file of it; $" + passwordVariable + " is its password.\n" +
			"If $" + keyVariable + " is not set, nothing is signed. If it is empty, as a secret that CI does not have, that is an error.",
	}
	f := cmd.Flags()
	f.BoolVar(&insecure, "insecure", false, "allow plain HTTP beyond loopback")
	f.StringVar(&publicKey, "public-key", "", "write the public key to this file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		value, set := os.LookupEnv(keyVariable)
		if !set {
			if len(args) > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "image: %s is not set: signed nothing\n", keyVariable)
			}
			return nil
		}
		key, err := readKey(value, os.Getenv(passwordVariable))
		if err != nil {
			return err
		}
		for _, reference := range args {
			if err := key.Sign(cmd.Context(), reference, insecure); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "Signed", reference)
		}
		return writePublicKey(key, publicKey)
	}
	return cmd
}

// readKey reads a private key, or the file of one.
func readKey(value, password string) (registry.Key, error) {
	text := []byte(value)
	if value == "" {
		return registry.Key{}, fmt.Errorf("%s is empty: give it the private key, or unset it to sign nothing", keyVariable)
	}
	if !strings.Contains(value, "-----BEGIN ") {
		var err error
		if text, err = os.ReadFile(value); err != nil {
			// The error of the operating system names the file, which may be a key without its first line.
			return registry.Key{}, fmt.Errorf("%s is neither a key in PEM nor the file of one: %w", keyVariable, errors.Unwrap(err))
		}
	}
	key, err := registry.LoadKey(text, []byte(password))
	if err != nil {
		return registry.Key{}, fmt.Errorf("%s, with the password in %s: %w", keyVariable, passwordVariable, err)
	}
	return key, nil
}

func writePublicKey(key registry.Key, file string) error {
	if file == "" {
		return nil
	}
	text, err := key.Public()
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
