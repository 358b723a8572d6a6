package ociapi

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/common/auth"
	"github.com/spf13/pflag"
)

// Kinds of authentication.
const (
	APIKey            = "api-key"
	ConfigFile        = "config-file"
	InstancePrincipal = "instance-principal"
	WorkloadIdentity  = "workload-identity"
	ResourcePrincipal = "resource-principal"
)

var kinds = []string{APIKey, ConfigFile, InstancePrincipal, WorkloadIdentity, ResourcePrincipal}

// Options configure the connection to OCI.
type Options struct {
	Auth         string
	KeyDirectory string // of APIKey: files tenancy, user, region, fingerprint, key.pem, and passphrase if the key has one
	ConfigFile   string // of ConfigFile
	Profile      string
	Region       string // empty: that of the credentials
	Endpoint     string // empty: that of the region
	Rate         float64
}

// DefaultOptions returns the defaults.
func DefaultOptions() Options {
	const rate = 10 // half of what the cloud-controller-manager takes
	return Options{
		Auth: InstancePrincipal, KeyDirectory: "/etc/fairlead/oci", ConfigFile: "/etc/fairlead/oci/config", Profile: "DEFAULT", Rate: rate,
	}
}

// AddFlags binds the options.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Auth, "oci-auth", o.Auth, "Authentication at OCI: "+strings.Join(kinds, ", ")+".")
	fs.StringVar(&o.KeyDirectory, "oci-key-directory", o.KeyDirectory,
		"Directory of an API key: files tenancy, user, region, fingerprint, key.pem, and passphrase if the key has one. The files are "+
			"read again every minute.")
	fs.StringVar(&o.ConfigFile, "oci-config-file", o.ConfigFile, "Configuration file of OCI's SDK, for --oci-auth=config-file.")
	fs.StringVar(&o.Profile, "oci-config-profile", o.Profile, "Profile in the configuration file.")
	fs.StringVar(&o.Region, "oci-region", o.Region, "Region of the load balancers. Defaults to the region of the credentials.")
	fs.StringVar(&o.Endpoint, "oci-endpoint", o.Endpoint,
		"URL of the Load Balancer API, without a path. Defaults to the endpoint of the region.")
	fs.Float64Var(&o.Rate, "oci-requests-per-second", o.Rate,
		"Limit of requests to OCI. The program halves it when OCI answers 429, and restores it gradually.")
}

// Validate returns an error for each flag with an invalid value.
func (o *Options) Validate() error {
	var errs []error
	if !slices.Contains(kinds, o.Auth) {
		errs = append(errs, fmt.Errorf("--oci-auth %q is not one of %s", o.Auth, strings.Join(kinds, ", ")))
	}
	if o.Rate < minRate {
		errs = append(errs, fmt.Errorf("--oci-requests-per-second %g is less than %g", o.Rate, minRate))
	}
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" ||
			u.User != nil {
			errs = append(errs,
				fmt.Errorf("--oci-endpoint %q must be a URL without a path, such as https://iaas.us-ashburn-1.oraclecloud.com", o.Endpoint))
		}
	}
	return errors.Join(errs...)
}

// newProvider returns the credentials. Those of principals are requested from services of the cloud.
func (o *Options) newProvider() (common.ConfigurationProvider, error) {
	var p common.ConfigurationProvider
	var err error
	switch o.Auth {
	case APIKey:
		p, err = newKeyDirectory(o.KeyDirectory)
	case ConfigFile:
		if p, err = common.ConfigurationProviderFromFileWithProfile(o.ConfigFile, o.Profile,
			os.Getenv("OCI_CONFIG_PASSPHRASE")); err == nil {
			_, err = p.KeyID()
		}
	case InstancePrincipal:
		p, err = auth.InstancePrincipalConfigurationProvider()
	case WorkloadIdentity:
		p, err = auth.OkeWorkloadIdentityConfigurationProvider()
	case ResourcePrincipal:
		p, err = auth.ResourcePrincipalConfigurationProvider()
	}
	if err != nil {
		return nil, fmt.Errorf("read credentials (--oci-auth=%s): %w", o.Auth, err)
	}
	return p, nil
}

// keyInterval is the time between two reads of a key: a Secret that is rotated reaches its pods within two minutes.
const keyInterval = time.Minute

// keyDirectory is an API key in the files of a Secret. What signs requests is read again and again; the region and the rest are those that
// the files had first.
type keyDirectory struct {
	common.ConfigurationProvider

	path string

	mu      sync.Mutex
	read    time.Time
	current common.KeyProvider
}

func newKeyDirectory(path string) (*keyDirectory, error) {
	first, err := readKey(path)
	return &keyDirectory{ConfigurationProvider: first, path: path, read: time.Now(), current: first}, err
}

// currentKey reads the files if a minute has passed. Files that cannot be read leave the previous key in use.
func (k *keyDirectory) currentKey() common.KeyProvider {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.read) >= keyInterval {
		if next, err := readKey(k.path); err == nil {
			k.current = next
		}
		k.read = time.Now()
	}
	return k.current
}

// PrivateRSAKey implements common.KeyProvider.
func (k *keyDirectory) PrivateRSAKey() (*rsa.PrivateKey, error) {
	return k.currentKey().PrivateRSAKey()
}

// KeyID implements common.KeyProvider.
func (k *keyDirectory) KeyID() (string, error) { return k.currentKey().KeyID() }

// readKey reads the files of an API key.
func readKey(directory string) (common.ConfigurationProvider, error) {
	texts := map[string]string{}
	for _, name := range []string{"tenancy", "user", "region", "fingerprint", "key.pem", "passphrase"} {
		text, err := os.ReadFile(filepath.Join(directory, name))
		switch {
		case err == nil:
			texts[name] = strings.TrimSpace(string(text))
		case name != "passphrase" || !errors.Is(err, os.ErrNotExist):
			return nil, fmt.Errorf("read API key: %w", err)
		}
	}
	var passphrase *string
	if p := texts["passphrase"]; p != "" {
		passphrase = &p
	}
	key := common.NewRawConfigurationProvider(texts["tenancy"], texts["user"], texts["region"], texts["fingerprint"], texts["key.pem"],
		passphrase)
	if _, err := key.PrivateRSAKey(); err != nil {
		return nil, fmt.Errorf("read API key: %s: not a private key in PEM, or the wrong passphrase", filepath.Join(directory, "key.pem"))
	}
	return key, nil
}
