package attest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var build = Build{Name: "app", Version: "v1.2.3", Revision: strings.Repeat("a", 40), Source: "https://fairlead.dev", Licenses: "Apache-2.0",
	Created: time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)}

// program returns a program as the Go toolchain describes one.
func program() Program {
	return Program{
		Platform: "linux/amd64", Image: strings.Repeat("1", 64), SHA256: strings.Repeat("3", 64),
		Info: &debug.BuildInfo{
			GoVersion: runtime.Version(), Path: "fairlead.dev/services/app", Main: debug.Module{Path: "fairlead.dev/services/app", Version: "(devel)"},
			Deps: []*debug.Module{
				{Path: "github.com/Masterminds/semver/v3", Version: "v3.4.0", Sum: "h1:Zog+i5UMtVoCU8oKka5P7i9q9HgrJeGzI9SA1Xbatp0="},
				{Path: "github.com/docker/cli", Version: "v29.6.2+incompatible", Sum: "h1:AAAA"},
				{Path: "golang.org/x/sys", Version: "v0.47.0", Sum: "h1:BBBB"},
			},
			Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "CGO_ENABLED", Value: "0"}, {Key: "GOARCH", Value: runtime.GOARCH}},
		},
	}
}

func sbom(t *testing.T, p Program) *v2_3.Document {
	t.Helper()
	raw, err := SBOM(build, p)
	require.NoError(t, err)
	again, err := SBOM(build, p)
	require.NoError(t, err)
	require.Equal(t, string(raw), string(again))
	var doc v2_3.Document
	require.NoError(t, spdxjson.ReadInto(bytes.NewReader(raw), &doc))
	return &doc
}

func TestSBOM_ListsTheModules(t *testing.T) {
	t.Parallel()
	testSBOM(t, program())
}

func testSBOM(t *testing.T, program Program) {
	t.Helper()
	require.NotEmpty(t, program.Info.Deps)
	doc := sbom(t, program)

	byName := map[string]*v2_3.Package{}
	ids := map[string]bool{}
	valid := regexp.MustCompile(`^[A-Za-z0-9.-]+$`)
	for _, p := range doc.Packages {
		byName[p.PackageName] = p
		id := string(p.PackageSPDXIdentifier)
		assert.Regexp(t, valid, id)
		assert.False(t, ids[id], "%s twice", id)
		ids[id] = true
		assert.False(t, p.FilesAnalyzed)
		assert.Len(t, p.PackageExternalReferences, 1)
	}
	for _, m := range program.Info.Deps {
		p := byName[m.Path]
		require.NotNil(t, p, m.Path)
		assert.Equal(t, m.Version, p.PackageVersion)
		assert.Equal(t, "pkg:golang/"+strings.ToLower(m.Path)+"@"+strings.ReplaceAll(m.Version, "+", "%2B"), p.PackageExternalReferences[0].Locator)
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
		require.NoError(t, err)
		require.Len(t, p.PackageChecksums, 1, m.Path)
		assert.Equal(t, hex.EncodeToString(sum), p.PackageChecksums[0].Value)
	}
	stdlib := byName["stdlib"]
	require.NotNil(t, stdlib)
	assert.Equal(t, strings.TrimPrefix(runtime.Version(), "go"), stdlib.PackageVersion)
	image := byName["app"]
	require.NotNil(t, image)
	assert.Equal(t, "CONTAINER", image.PrimaryPackagePurpose)
	assert.Equal(t, strings.Repeat("1", 64), image.PackageChecksums[0].Value)
	assert.Equal(t, "Apache-2.0", image.PackageLicenseDeclared)
	assert.Equal(t, "2026-11-01T12:00:00Z", doc.CreationInfo.Created)
	assert.Contains(t, doc.DocumentNamespace, strings.Repeat("1", 64))
}

func TestSBOM_Relationships(t *testing.T) {
	t.Parallel()
	p := program()
	doc := sbom(t, p)
	count := map[string]int{}
	for _, r := range doc.Relationships {
		count[r.Relationship]++
	}
	// The image contains the program, which depends on the modules and the standard library.
	assert.Equal(t, map[string]int{"DESCRIBES": 1, "CONTAINS": 1, "DEPENDS_ON": len(p.Info.Deps) + 1}, count)
}

func TestDescribeModule(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                  string
		give                  debug.Module
		wantName, wantVersion string
		wantURL               string
		wantSum               int
	}{
		{name: "a module", give: debug.Module{Path: "example.com/A", Version: "v1.0.0+incompatible", Sum: "h1:AAAA"}, wantName: "example.com/A",
			wantVersion: "v1.0.0+incompatible", wantURL: "pkg:golang/example.com/a@v1.0.0%2Bincompatible", wantSum: 1},
		{name: "a folder of this repository in its place", give: debug.Module{Path: "fairlead.dev/pkg", Version: "v0.0.0", Replace: &debug.Module{Path: "../../pkg"}},
			wantName: "fairlead.dev/pkg", wantVersion: "v1.2.3", wantURL: "pkg:golang/fairlead.dev/pkg@v1.2.3"},
		{name: "another module in its place", give: debug.Module{Path: "a.b/c", Version: "v1.0.0", Replace: &debug.Module{Path: "d.e/f", Version: "v2.0.0", Sum: "h1:AAAA"}},
			wantName: "d.e/f", wantVersion: "v2.0.0", wantURL: "pkg:golang/d.e/f@v2.0.0", wantSum: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := describeModule(&tt.give, "v1.2.3")
			require.NoError(t, err)
			assert.Equal(t, tt.wantName, p.PackageName)
			assert.Equal(t, tt.wantVersion, p.PackageVersion)
			assert.Equal(t, tt.wantURL, p.PackageExternalReferences[0].Locator)
			assert.Len(t, p.PackageChecksums, tt.wantSum)
		})
	}
	_, err := describeModule(&debug.Module{Path: "a.b/c", Sum: "h1:?"}, "v1")
	require.ErrorContains(t, err, "read the checksum of a.b/c")
}

func TestProvenance(t *testing.T) {
	t.Parallel()
	testProvenance(t, program())
}

func testProvenance(t *testing.T, p Program) {
	t.Helper()
	raw, err := Provenance(build, strings.Repeat("2", 64), []Program{p})
	require.NoError(t, err)
	var got statement
	require.NoError(t, json.Unmarshal(raw, &got))
	assert.Equal(t, "https://in-toto.io/Statement/v1", got.Type)
	assert.Equal(t, "https://slsa.dev/provenance/v1", got.PredicateType)
	assert.Equal(t, []resource{
		{Name: "app", Digest: map[string]string{"sha256": strings.Repeat("2", 64)}},
		{Name: "app linux/amd64", Digest: map[string]string{"sha256": strings.Repeat("1", 64)}},
	}, got.Subject)
	definition := got.Predicate.BuildDefinition
	assert.Equal(t, externalParameters{Image: "app", Version: "v1.2.3", Source: "https://fairlead.dev", Revision: build.Revision}, definition.ExternalParameters)
	assert.Equal(t, []resource{{URI: "git+https://fairlead.dev@" + build.Revision, Digest: map[string]string{"gitCommit": build.Revision}}}, definition.ResolvedDependencies)
	compiled := definition.InternalParameters["linux/amd64"]
	assert.Equal(t, runtime.Version(), compiled.Go)
	for _, s := range p.Info.Settings {
		assert.Equal(t, s.Value, compiled.Settings[s.Key], s.Key)
	}
	assert.Equal(t, runtime.GOARCH, compiled.Settings["GOARCH"])
	assert.NotEmpty(t, got.Predicate.RunDetails.Builder.ID)
}

// A build with changes beside its commit is not a build of the commit.
func TestProvenance_OfChangedFilesHasNoCommit(t *testing.T) {
	t.Parallel()
	b := build
	b.Revision += "-dirty"
	raw, err := Provenance(b, "", nil)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "gitCommit")
	assert.Contains(t, string(raw), build.Revision+"-dirty")
}

func TestReadProgram_NeedsAGoProgram(t *testing.T) {
	t.Parallel()
	_, err := ReadProgram("/bin/sh", "linux/amd64", "")
	require.ErrorContains(t, err, "read the build information of /bin/sh, which must be a Go program")
}
