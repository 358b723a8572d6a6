// Package attest describes the build of an image: an SPDX document lists the modules of its program, and an in-toto
// statement with a SLSA predicate contains the provenance of the build. Both depend only on their input.
package attest

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"
)

// Media types of the documents.
const (
	SBOMType       = "application/spdx+json"
	ProvenanceType = "application/vnd.in-toto+json"
)

// Build contains the properties that the images of all platforms share.
type Build struct {
	Name, Version, Revision, Source, Licenses string
	Created                                   time.Time
}

// Program is a Go binary and the image with it.
type Program struct {
	Platform string
	Image    string // sha256 of the image's manifest, in hexadecimal
	SHA256   string // of the binary
	Info     *debug.BuildInfo
}

// ReadProgram reads the build information that the Go toolchain recorded in a binary.
func ReadProgram(file, platform, image string) (Program, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return Program{}, fmt.Errorf("read the build information of %s, which must be a Go program: %w", file, err)
	}
	f, err := os.Open(file)
	if err != nil {
		return Program{}, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return Program{}, err
	}
	return Program{Platform: platform, Image: image, SHA256: hex.EncodeToString(sum.Sum(nil)), Info: info}, nil
}
