package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// FindBinary returns the path of the localkube binary, or an error that names the make target that builds it.
func FindBinary() (string, error) {
	return findProgram(BinaryEnv, filepath.Join("bin", "localkube"), "make local")
}

func findImages() (string, error) {
	return findProgram(ImagesEnv, filepath.Join("bin", "images"), "make local-images")
}

// findProgram returns the path in the environment variable env, or the path of file in the repository of the working directory.
func findProgram(env, file, target string) (string, error) {
	if path := os.Getenv(env); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s is set to %s: %w", env, path, err)
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

// Repository returns the root of the repository of the working directory: the nearest parent directory with a go.work file.
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
			return "", errors.New("no go.work in the working directory or its parents: set " + BinaryEnv + " and " + ImagesEnv)
		}
	}
}
