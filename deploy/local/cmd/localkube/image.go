package main

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"fairlead.dev/deploy/local/internal/imagestore"
)

func imageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Add, tag, list and remove images of a store"}
	dir := cmd.PersistentFlags().String("store", "", "image store (required)")
	store := func() (*imagestore.Store, error) {
		if *dir == "" {
			return nil, errors.New("--store: name the image store")
		}
		return imagestore.Open(*dir), nil
	}
	cmd.AddCommand(imageAdd(store), imageTag(store), imageList(store), imageRemove(store), imagePrune(store))
	return cmd
}

type openStore func() (*imagestore.Store, error)

func imageAdd(open openStore) *cobra.Command {
	var files, env []string
	var entrypoint []string
	var user int
	cmd := &cobra.Command{Use: "add NAME:TAG [BINARY]", Short: "Make an image of a static binary, or of files",
		Long: "BINARY becomes /<its name> and the entrypoint. --file adds files or folders; then --entrypoint says what to run.",
		Args: cobra.RangeArgs(1, 2)}
	cmd.Flags().StringArrayVar(&files, "file", nil, "SOURCE=/TARGET, a file or folder to add; repeatable")
	cmd.Flags().StringArrayVar(&entrypoint, "entrypoint", nil, "program and arguments; repeatable, one word each")
	cmd.Flags().StringArrayVar(&env, "env", nil, "NAME=VALUE; repeatable")
	cmd.Flags().IntVar(&user, "user", imagestore.DefaultUser, "user id that it runs as")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := open()
		if err != nil {
			return err
		}
		cfg := imagestore.Config{Entrypoint: entrypoint, Env: env, User: &user}
		var list []imagestore.File
		if len(args) == 2 {
			target := path.Join("/", filepath.Base(args[1]))
			list = append(list, imagestore.File{Source: args[1], Target: target})
			if len(entrypoint) == 0 {
				cfg.Entrypoint = []string{target}
			}
		}
		for _, f := range files {
			source, target, ok := strings.Cut(f, "=")
			if !ok {
				return fmt.Errorf("--file %q is not SOURCE=/TARGET", f)
			}
			list = append(list, imagestore.File{Source: source, Target: target})
		}
		img, err := s.Add(args[0], list, cfg)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), img.Digest)
		return nil
	}
	return cmd
}

func imageTag(open openStore) *cobra.Command {
	return &cobra.Command{Use: "tag EXISTING NAME:TAG", Short: "Give an image another name or tag", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := open()
			if err != nil {
				return err
			}
			return s.Tag(args[0], args[1])
		}}
}

func imageList(open openStore) *cobra.Command {
	return &cobra.Command{Use: "ls", Short: "List images", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		s, err := open()
		if err != nil {
			return err
		}
		images, err := s.List()
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "IMAGE\tDIGEST\tSIZE")
		for _, img := range images {
			for _, r := range img.Refs {
				fmt.Fprintf(w, "%s\t%.19s\t%d MB\n", r, img.Digest, img.Size>>20)
			}
		}
		return w.Flush()
	}}
}

func imageRemove(open openStore) *cobra.Command {
	return &cobra.Command{Use: "rm NAME:TAG", Short: "Remove a tag", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		s, err := open()
		if err != nil {
			return err
		}
		return s.Untag(args[0])
	}}
}

func imagePrune(open openStore) *cobra.Command {
	return &cobra.Command{Use: "prune", Short: "Remove images that no tag leads to; no cluster that uses the store may run", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := open()
			if err != nil {
				return err
			}
			n, err := s.Prune()
			fmt.Fprintln(cmd.OutOrStdout(), n, "removed")
			return err
		}}
}
