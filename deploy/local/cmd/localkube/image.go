package main

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"fairlead.dev/deploy/local/internal/imagestore"
)

func imageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Load, tag, list and remove images of a store"}
	dir := cmd.PersistentFlags().String("store", "", "image store (required)")
	store := func() (*imagestore.Store, error) {
		if *dir == "" {
			return nil, errors.New("--store: name the image store")
		}
		return imagestore.Open(*dir), nil
	}
	cmd.AddCommand(imageLoad(store), imageTag(store), imageList(store), imageRemove(store), imagePrune(store))
	return cmd
}

type openStore func() (*imagestore.Store, error)

func imageLoad(open openStore) *cobra.Command {
	return &cobra.Command{Use: "load LAYOUT [NAME:TAG]", Short: "Load an OCI layout, named by its annotations or by NAME:TAG", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := open()
			if err != nil {
				return err
			}
			img, err := s.LoadLayout(args[0], strings.Join(args[1:], ""))
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), img.ID)
			return nil
		}}
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
		fmt.Fprintln(w, "IMAGE\tID\tSIZE")
		for _, img := range images {
			for _, r := range img.Refs {
				fmt.Fprintf(w, "%s\t%.19s\t%d MB\n", r, img.ID, img.Size>>20)
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
	return &cobra.Command{Use: "prune", Short: "Remove images without a tag, while no cluster uses the store", Args: cobra.NoArgs,
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
