package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"
)

// FlagReplicaBindAddress is the name of a flag in messages.
const FlagReplicaBindAddress = "replica-bind-address"

const flagReplicaAddresses = "replica-addresses"

// Replicas configures what the replicas of the picker tell each other.
type Replicas struct {
	Addresses   []string // of all replicas, "host:port"; none: they tell each other nothing
	BindAddress string
}

// IsEnabled reports whether the replicas tell each other anything.
func (r *Replicas) IsEnabled() bool { return len(r.Addresses) > 0 }

func (r *Replicas) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&r.Addresses, flagReplicaAddresses, r.Addresses,
		"Addresses of the replicas of the picker, host:port, such as a headless Service. "+
			"A host may have several addresses, and this replica may be among them. The replicas then tell each other of their requests. "+
			"Empty: they do not.")
	fs.StringVar(&r.BindAddress, FlagReplicaBindAddress, r.BindAddress,
		"Address where the other replicas hear of requests. Nothing listens there without --"+flagReplicaAddresses+".")
}

func (r *Replicas) validateFlags() error {
	if !r.IsEnabled() {
		return nil
	}
	problems := []error{validateHostPort(FlagReplicaBindAddress, r.BindAddress)}
	for _, address := range r.Addresses {
		problems = append(problems, validateHostPort(flagReplicaAddresses, address))
		if host, _, err := net.SplitHostPort(address); err == nil && host == "" {
			problems = append(problems, fmt.Errorf("--%s %q has no host: give one such as picker-replicas:9004", flagReplicaAddresses,
				address))
		}
	}
	return errors.Join(problems...)
}

func validateHostPort(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--%s %q is not an address: give host:port", flag, address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > maxPort {
		return fmt.Errorf("--%s %q has no valid port: give one from 1 to %d", flag, address, maxPort)
	}
	return nil
}
