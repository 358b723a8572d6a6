package attest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const (
	noAssertion = "NOASSERTION"
	rootsModule = "golang.org/x/crypto/x509roots/fallback"
)

// SBOM returns an SPDX 2.3 document as JSON: the image contains the program and the CA certificates, and the program depends on
// the modules and the Go release that it was built from.
func SBOM(b Build, p Program) ([]byte, error) {
	doc := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: b.Name + "-" + b.Version + "-" + p.Platform, DocumentNamespace: "https://fairlead.dev/spdx/" + b.Name + "/" + p.Image,
		CreationInfo: &v2_3.CreationInfo{Created: b.Created.UTC().Format(time.RFC3339),
			Creators: []common.Creator{
				{CreatorType: "Organization", Creator: "Fairlead"}, {CreatorType: "Tool", Creator: "fairlead.dev/deploy/images"},
			}},
	}
	image := describe(b.Name, b.Version, "pkg:oci/"+b.Name+"@"+url.QueryEscape("sha256:"+p.Image))
	image.PrimaryPackagePurpose, image.PackageLicenseDeclared = "CONTAINER", licenses(b.Licenses)
	image.PackageChecksums = sha256Sum(p.Image)
	program := describe(p.Info.Path, b.Version, golangURL(p.Info.Main.Path, b.Version))
	program.PrimaryPackagePurpose, program.PackageLicenseDeclared = "APPLICATION", licenses(b.Licenses)
	program.PackageChecksums = sha256Sum(p.SHA256)
	doc.Packages = []*v2_3.Package{image, program}
	relate(doc, "DOCUMENT", common.TypeRelationshipDescribe, image)
	relate(doc, image.PackageSPDXIdentifier, common.TypeRelationshipContains, program)
	if err := addDependencies(doc, b, p, program); err != nil {
		return nil, err
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path != rootsModule {
				continue
			}
			roots, err := describeModule(m, b.Version)
			if err != nil {
				return nil, err
			}
			doc.Packages = append(doc.Packages, roots)
			relate(doc, image.PackageSPDXIdentifier, common.TypeRelationshipContains, roots)
		}
	}
	var out bytes.Buffer
	err := json.Write(doc, &out)
	return out.Bytes(), err
}

func addDependencies(doc *v2_3.Document, b Build, p Program, program *v2_3.Package) error {
	release := strings.TrimPrefix(strings.Fields(p.Info.GoVersion)[0], "go")
	dependencies := []*v2_3.Package{describe("stdlib", release, golangURL("stdlib", release))}
	modules := slices.SortedFunc(slices.Values(p.Info.Deps), func(x, y *debug.Module) int { return strings.Compare(x.Path, y.Path) })
	for _, m := range modules {
		d, err := describeModule(m, b.Version)
		if err != nil {
			return err
		}
		dependencies = append(dependencies, d)
	}
	for _, d := range dependencies {
		doc.Packages = append(doc.Packages, d)
		relate(doc, program.PackageSPDXIdentifier, common.TypeRelationshipDependsOn, d)
	}
	return nil
}

// describeModule describes a module, or its replacement. A module that a folder replaces belongs to this repository and has
// the version of the image.
func describeModule(m *debug.Module, version string) (*v2_3.Package, error) {
	if m.Replace != nil && m.Replace.Version == "" {
		return describe(m.Path, version, golangURL(m.Path, version)), nil
	}
	if m.Replace != nil {
		m = m.Replace
	}
	p := describe(m.Path, m.Version, golangURL(m.Path, m.Version))
	if m.Sum == "" {
		return p, nil
	}
	// go.sum contains the SHA-256 of the module's content in base64: https://pkg.go.dev/golang.org/x/mod/sumdb/dirhash.
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil {
		return nil, fmt.Errorf("read the checksum of %s: %w", m.Path, err)
	}
	p.PackageChecksums = sha256Sum(hex.EncodeToString(raw))
	return p, nil
}

func describe(name, version, purl string) *v2_3.Package {
	return &v2_3.Package{
		PackageName: name, PackageVersion: version, PackageSPDXIdentifier: common.ElementID("Package-" + identifier(name)),
		PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: noAssertion,
		PackageCopyrightText: noAssertion, IsFilesAnalyzedTagPresent: true,
		PackageExternalReferences: []*v2_3.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl,
		}},
	}
}

// identifier returns a name in the letters that SPDX allows. A slash becomes two hyphens, which no path of a required module
// contains; other letters become their codes.
func identifier(name string) string {
	var b strings.Builder
	for _, r := range name {
		switch {
		case r == '/':
			b.WriteString("--")
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "-u%x-", r)
		}
	}
	return b.String()
}

// golangURL returns the package URL of a module. Names in package URLs are lower case, and a plus sign would mean a space.
func golangURL(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}

func sha256Sum(hexadecimal string) []common.Checksum {
	return []common.Checksum{{Algorithm: common.SHA256, Value: hexadecimal}}
}

func licenses(declared string) string {
	if declared == "" {
		return noAssertion
	}
	return declared
}

func relate(doc *v2_3.Document, from common.ElementID, kind string, to *v2_3.Package) {
	doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
		RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: to.PackageSPDXIdentifier},
		Relationship: kind,
	})
}
