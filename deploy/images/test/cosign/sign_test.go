//go:build system

// Package cosign_test verifies the signatures of this repository with the code of `cosign verify --key`.
package cosign_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ocireg "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/cosign/v3/pkg/oci"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	images "fairlead.dev/deploy/images/internal/oci"
	"fairlead.dev/deploy/images/internal/programtest"
	"fairlead.dev/deploy/images/internal/registry"
)

// serve starts a registry and returns its host.
func serve(t *testing.T, referrers bool) string {
	t.Helper()
	server := httptest.NewServer(ocireg.New(ocireg.WithReferrersSupport(referrers)))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// pushImage pushes an image for two platforms, with its SBOMs and provenance, and returns its reference.
func pushImage(t *testing.T, host string) string {
	t.Helper()
	program, dir := programtest.Compile(t), filepath.Join(t.TempDir(), "layout")
	_, err := images.Build(dir, images.Params{Name: "app", Version: "v1.2.3", Attest: true,
		Binaries: []images.Binary{{Platform: "linux/amd64", File: program}, {Platform: "linux/arm64", File: program}}})
	require.NoError(t, err)
	reference, err := registry.Push(t.Context(), registry.Target{Registry: host + "/team"}, dir)
	require.NoError(t, err)
	return reference
}

// pushChart pushes an artifact with the media types of Helm and returns its reference.
func pushChart(t *testing.T, host string) string {
	t.Helper()
	chart, err := mutate.Append(empty.Image, mutate.Addendum{Layer: static.NewLayer([]byte("archive"), "application/vnd.cncf.helm.chart.content.v1.tar+gzip")})
	require.NoError(t, err)
	chart = mutate.ConfigMediaType(mutate.MediaType(chart, types.OCIManifestSchema1), "application/vnd.cncf.helm.config.v1+json")
	tag, err := name.NewTag(host + "/team/charts/app:1.2.3")
	require.NoError(t, err)
	require.NoError(t, remote.Write(tag, chart))
	digest, err := chart.Digest()
	require.NoError(t, err)
	return tag.Context().Digest(digest.String()).String()
}

// keyPair returns a key that signs, and what verifies with its public half.
func keyPair(t *testing.T, private crypto.PrivateKey) (registry.Key, signature.Verifier) {
	t.Helper()
	text, err := cryptoutils.MarshalPrivateKeyToPEM(private)
	require.NoError(t, err)
	key, err := registry.LoadKey(text, nil)
	require.NoError(t, err)
	public, err := key.Public()
	require.NoError(t, err)
	parsed, err := cryptoutils.UnmarshalPEMToPublicKey(public)
	require.NoError(t, err)
	verifier, err := signature.LoadVerifier(parsed, crypto.SHA256) // as cosign's pkg/signature.LoadPublicKey
	require.NoError(t, err)
	return key, verifier
}

func ecdsaPair(t *testing.T) (registry.Key, signature.Verifier) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return keyPair(t, private)
}

// verify does what `cosign verify --key cosign.pub --insecure-ignore-tlog` does.
func verify(t *testing.T, reference string, verifier signature.Verifier) ([]oci.Signature, error) {
	t.Helper()
	parsed, err := name.ParseReference(reference)
	require.NoError(t, err)
	// cosign looks for bundles, the form of its version 3, first. Without any it looks for signatures in the form of all versions.
	bundles, _, err := cosign.GetBundles(t.Context(), parsed, nil)
	require.Error(t, err)
	require.Empty(t, bundles)
	verified, _, err := cosign.VerifyImageSignatures(t.Context(), parsed,
		&cosign.CheckOpts{SigVerifier: verifier, ClaimVerifier: cosign.SimpleClaimVerifier, IgnoreTlog: true})
	return verified, err
}

func TestSign_CosignVerifies(t *testing.T) {
	t.Parallel()
	key, verifier := ecdsaPair(t)
	_, other := ecdsaPair(t)
	tests := []struct {
		name      string
		referrers bool // older registries have no API for referrers
		push      func(*testing.T, string) string
		tag       string
	}{
		{name: "image", referrers: true, push: pushImage, tag: "/team/app:v1.2.3"},
		{name: "image in an older registry", push: pushImage, tag: "/team/app:v1.2.3"},
		{name: "chart", referrers: true, push: pushChart, tag: "/team/charts/app:1.2.3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			host := serve(t, tt.referrers)
			reference := tt.push(t, host)
			_, err := verify(t, reference, verifier)
			require.ErrorContains(t, err, "no signatures found")

			require.NoError(t, key.Sign(t.Context(), reference, false))
			for _, reference := range []string{reference, host + tt.tag} {
				verified, err := verify(t, reference, verifier)
				require.NoError(t, err, reference)
				assert.Len(t, verified, 1, reference)
				_, err = verify(t, reference, other)
				require.ErrorContains(t, err, "no matching signatures", reference)
			}
		})
	}
}

func TestSign_AllKindsOfKeys(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	reference := pushChart(t, serve(t, true))
	for kind, private := range map[string]crypto.PrivateKey{"RSA": rsaKey, "Ed25519": edKey} {
		key, verifier := keyPair(t, private)
		require.NoError(t, key.Sign(t.Context(), reference, false), kind)
		verified, err := verify(t, reference, verifier)
		require.NoError(t, err, kind)
		assert.Len(t, verified, 1, kind)
	}
}

func TestSign_KeepsTheSignaturesOfOthers(t *testing.T) {
	t.Parallel()
	reference := pushChart(t, serve(t, true))
	first, firstVerifier := ecdsaPair(t)
	second, secondVerifier := ecdsaPair(t)
	require.NoError(t, first.Sign(t.Context(), reference, false))
	require.NoError(t, second.Sign(t.Context(), reference, false))
	for _, verifier := range []signature.Verifier{firstVerifier, secondVerifier} {
		_, err := verify(t, reference, verifier)
		require.NoError(t, err)
	}
}
