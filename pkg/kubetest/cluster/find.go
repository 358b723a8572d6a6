package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// FindBinary returns the localkube binary, or an error that names the target which builds it.
func FindBinary() (string, error) {
	return find(BinaryEnv, filepath.Join("bin", "localkube"), "make local")
}

func findImages() (string, error) {
	return find(ImagesEnv, filepath.Join("bin", "images"), "make images")
}

// find returns what env names, or the file of the repository that we are in.
func find(env, file, target string) (string, error) {
	if path := os.Getenv(env); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s names %s, which is not there: %w", env, path, err)
		}
		return path, nil
	}
	root, err := Repository()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, file)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing: run `%s` in %s", file, target, root)
	}
	return path, nil
}

// Repository returns the root of the repository that the working directory is in: the folder with go.work.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the working directory is in no repository with a go.work; set " + BinaryEnv + " and " + ImagesEnv)
		}
	}
}
