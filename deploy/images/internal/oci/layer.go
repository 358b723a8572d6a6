package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Nonroot is the default user and group of an image. The base layer has it in /etc/passwd: the kubelet passes only the user
// to a container runtime, which looks up the group there.
const Nonroot = 65532

const (
	users = "root:x:0:0:root:/root:/sbin/nologin\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n" +
		"nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
	groups = "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n"
)

// entry is a file or directory of a layer. Names are relative, as in an archive.
type entry struct {
	name    string
	mode    int64
	owner   int
	dir     bool
	content func() (io.ReadCloser, error)
	size    int64
}

func text(name, content string) entry {
	return entry{name: name, mode: 0o644, size: int64(len(content)),
		content: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
}

func directory(name string, mode int64) entry { return entry{name: name, mode: mode, dir: true} }

// file is a file of this machine. Its mode keeps only the owner's permission to execute: the rest depends on the umask.
func file(source, name string) (entry, error) {
	info, err := os.Stat(source)
	if err != nil {
		return entry{}, err
	}
	if !info.Mode().IsRegular() {
		return entry{}, fmt.Errorf("%s is not a regular file", source)
	}
	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	return entry{name: name, mode: mode, size: info.Size(), content: func() (io.ReadCloser, error) { return os.Open(source) }}, nil
}

// baseEntries returns the files that a static binary needs on a real node.
func baseEntries() []entry {
	home := directory("home/nonroot", 0o700)
	home.owner = Nonroot
	return []entry{
		text("etc/group", groups), text("etc/passwd", users), text("etc/ssl/certs/ca-certificates.crt", rootCertificates()),
		home, directory("root", 0o700), directory("tmp", 0o1777),
	}
}

// rootCertificates returns the roots that Mozilla trusts unconditionally, as PEM. PEM cannot contain a condition, such as
// "only certificates issued before a date", so it omits the few conditional roots.
func rootCertificates() string {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer accepts all writes
		}
	}
	return b.String()
}

// withParents returns the entries and their parent directories, sorted.
func withParents(entries []entry) ([]entry, error) {
	known := map[string]entry{}
	for _, e := range entries {
		if _, ok := known[e.name]; ok {
			return nil, fmt.Errorf("/%s: two files of this name", e.name)
		}
		known[e.name] = e
	}
	for _, e := range entries {
		for dir := path.Dir(e.name); dir != "."; dir = path.Dir(dir) {
			above, ok := known[dir]
			if ok && !above.dir {
				return nil, fmt.Errorf("/%s: /%s is a file", e.name, dir)
			}
			if !ok {
				known[dir] = directory(dir, 0o755)
			}
		}
	}
	sorted := make([]entry, 0, len(known))
	for _, e := range known {
		sorted = append(sorted, e)
	}
	slices.SortFunc(sorted, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return sorted, nil
}

// layer is a stored layer. diffID is the digest of its content before compression.
type layer struct {
	descriptor v1.Descriptor
	diffID     v1.Hash
}

// writeLayer stores entries as a layer. It fixes everything that differs between machines: order, times, owners, modes, and
// the header of the compressed stream.
func (p *Params) writeLayer(l *Layout, entries []entry) (layer, error) {
	sorted, err := withParents(entries)
	if err != nil {
		return layer{}, err
	}
	mediaType := types.OCIUncompressedLayer
	if p.Compress {
		mediaType = types.OCILayer
	}
	plain := sha256.New()
	d, err := l.write(mediaType, func(w io.Writer) error {
		if !p.Compress {
			return writeTar(io.MultiWriter(w, plain), sorted, p.Created)
		}
		zip := gzip.NewWriter(w)
		return errors.Join(writeTar(io.MultiWriter(zip, plain), sorted, p.Created), zip.Close())
	})
	return layer{descriptor: d, diffID: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(plain.Sum(nil))}}, err
}

func writeTar(w io.Writer, entries []entry, created time.Time) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		if err := writeEntry(archive, e, created); err != nil {
			return fmt.Errorf("write /%s: %w", e.name, err)
		}
	}
	return archive.Close()
}

func writeEntry(archive *tar.Writer, e entry, created time.Time) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: e.size, ModTime: created}
	if e.dir {
		h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
	}
	if err := archive.WriteHeader(h); err != nil || e.dir {
		return err
	}
	content, err := e.content()
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(archive, content)
	return err
}
