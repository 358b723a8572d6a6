package registry

import (
	"bytes"
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	remotetransport "github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// The form of signatures that every cosign reads: specs/SIGNATURE_SPEC.md of cosign.
const (
	signaturePayload    = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
)

// Key signs what is in a registry, as `cosign sign --key` does. No transparency log has its signatures.
type Key struct{ signer signature.SignerVerifier }

// LoadKey reads a private key in PEM, such as `cosign generate-key-pair` writes it.
func LoadKey(text, password []byte) (Key, error) {
	private, err := cryptoutils.UnmarshalPEMToPrivateKey(text, cryptoutils.StaticPasswordFunc(password))
	if err != nil {
		return Key{}, fmt.Errorf("read private key: %w", err)
	}
	signer, err := signature.LoadSignerVerifier(private, crypto.SHA256)
	if err != nil {
		return Key{}, fmt.Errorf("read private key: %w", err)
	}
	return Key{signer: signer}, nil
}

// Public is the public key in PEM.
func (k Key) Public() ([]byte, error) {
	public, err := k.signer.PublicKey()
	if err != nil {
		return nil, err
	}
	return cryptoutils.MarshalPublicKeyToPEM(public)
}

// Sign signs the image or the chart with a reference by digest. The signatures of others stay.
func (k Key) Sign(ctx context.Context, reference string, insecure bool) error {
	t := Target{Insecure: insecure}
	subject, err := name.NewDigest(reference, t.nameOptions()...)
	if err != nil {
		return fmt.Errorf("sign %s: want a reference by digest: %w", reference, err)
	}
	if err := k.sign(subject, t.options(ctx)); err != nil {
		return fmt.Errorf("sign %s: %w", reference, err)
	}
	return nil
}

func (k Key) sign(subject name.Digest, options []remote.Option) error {
	manifest, err := remote.Head(subject, options...)
	if err != nil {
		return err
	}
	claim, err := json.Marshal(payload.Cosign{Image: subject})
	if err != nil {
		return err
	}
	signed, err := k.signer.SignMessage(bytes.NewReader(claim))
	if err != nil {
		return err
	}
	tag := subject.Context().Tag(manifest.Digest.Algorithm + "-" + manifest.Digest.Hex + ".sig")
	signatures, err := existing(tag, options)
	if err != nil {
		return err
	}
	signatures, err = mutate.Append(signatures, mutate.Addendum{
		Layer:       static.NewLayer(claim, signaturePayload),
		Annotations: map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signed)},
	})
	if err != nil {
		return err
	}
	return remote.Write(tag, signatures, options...)
}

// existing returns the image whose layers are signatures, or an empty one.
func existing(tag name.Tag, options []remote.Option) (v1.Image, error) {
	signatures, err := remote.Image(tag, options...)
	if e := (*remotetransport.Error)(nil); errors.As(err, &e) && e.StatusCode == http.StatusNotFound {
		return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	return signatures, err
}
