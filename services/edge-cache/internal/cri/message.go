package cri

import (
	"errors"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of runtime.v1 (k8s.io/cri-api, api.proto).
const (
	listFilter      = 1 // ListPodSandboxRequest.filter
	filterState     = 2 // PodSandboxFilter.state
	stateValue      = 1 // PodSandboxStateValue.state; SANDBOX_READY is 0
	listItems       = 1 // ListPodSandboxResponse.items
	sandboxID       = 1 // PodSandbox.id
	sandboxMetadata = 2 // PodSandbox.metadata
	sandboxState    = 3 // PodSandbox.state
	sandboxNotes    = 6 // PodSandbox.annotations
	noteKey         = 1
	noteValue       = 2
	metadataName    = 1 // PodSandboxMetadata.name
	metadataUID     = 2 // PodSandboxMetadata.uid
	metadataSpace   = 3 // PodSandboxMetadata.namespace
	statusStatus    = 1 // PodSandboxStatusResponse.status
	statusState     = 3 // PodSandboxStatus.state
	statusNetwork   = 5 // PodSandboxStatus.network
	networkIP       = 1 // PodSandboxNetworkStatus.ip
	networkMore     = 2 // PodSandboxNetworkStatus.additional_ips
	podIP           = 1 // PodIP.ip
)

var errMalformed = errors.New("message is malformed")

// The kubelet writes into this annotation where it has a pod from, whatever the pod says; api means the API server.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	sourceFile       = "file"
	sourceHTTP       = "http"
)

// sandbox is a ready sandbox.
type sandbox struct {
	id, uid, namespace, name string
	static                   bool
}

// listRequest asks for ready sandboxes.
func listRequest() []byte {
	state := protowire.AppendVarint(protowire.AppendTag(nil, stateValue, protowire.VarintType), 0)
	filter := protowire.AppendBytes(protowire.AppendTag(nil, filterState, protowire.BytesType), state)
	return protowire.AppendBytes(protowire.AppendTag(nil, listFilter, protowire.BytesType), filter)
}

// parseList reads the ready sandboxes. A pod has one; should a runtime list several, the last one counts, as it does in the map of Pods.
func parseList(message []byte) ([]sandbox, error) {
	var ready []sandbox
	err := fields(message, func(number protowire.Number, value []byte, _ uint64) error {
		if number != listItems {
			return nil
		}
		s, isReady, err := parseSandbox(value)
		if err != nil {
			return err
		}
		if len(ready) == maxSandboxes {
			return fmt.Errorf("more than %d sandboxes", maxSandboxes)
		}
		if isReady && s.id != "" && s.uid != "" {
			ready = append(ready, s)
		}
		return nil
	})
	return ready, err
}

func parseSandbox(message []byte) (s sandbox, ready bool, err error) {
	ready = true // proto3 omits 0, which is SANDBOX_READY
	err = fields(message, func(number protowire.Number, value []byte, scalar uint64) error {
		switch number {
		case sandboxID:
			s.id = string(value)
		case sandboxState:
			ready = scalar == 0
		case sandboxMetadata:
			return parseMetadata(value, &s)
		case sandboxNotes:
			key, source, err := parseNote(value)
			s.static = s.static || key == sourceAnnotation && (source == sourceFile || source == sourceHTTP)
			return err
		}
		return nil
	})
	return s, ready, err
}

func parseMetadata(message []byte, s *sandbox) error {
	return fields(message, func(number protowire.Number, value []byte, _ uint64) error {
		switch number {
		case metadataName:
			s.name = string(value)
		case metadataUID:
			s.uid = string(value)
		case metadataSpace:
			s.namespace = string(value)
		}
		return nil
	})
}

func parseNote(message []byte) (key, value string, err error) {
	err = fields(message, func(number protowire.Number, text []byte, _ uint64) error {
		switch number {
		case noteKey:
			key = string(text)
		case noteValue:
			value = string(text)
		}
		return nil
	})
	return key, value, err
}

// parseStatus reads the addresses of a sandbox, the main one first.
func parseStatus(message []byte) ([]netip.Addr, error) {
	var addresses []netip.Addr
	ready := true
	err := fields(message, func(number protowire.Number, status []byte, _ uint64) error {
		if number != statusStatus {
			return nil
		}
		return fields(status, func(number protowire.Number, value []byte, scalar uint64) error {
			switch number {
			case statusState:
				ready = scalar == 0
			case statusNetwork:
				var err error
				addresses, err = parseNetwork(value)
				return err
			}
			return nil
		})
	})
	if !ready {
		return nil, err
	}
	return addresses, err
}

func parseNetwork(message []byte) ([]netip.Addr, error) {
	var addresses []netip.Addr
	add := func(text []byte) error {
		if len(text) == 0 {
			return nil
		}
		if len(addresses) == maxAddresses {
			return fmt.Errorf("more than %d addresses", maxAddresses)
		}
		if len(text) > 64 {
			return errMalformed
		}
		address, err := netip.ParseAddr(string(text))
		if err != nil {
			return fmt.Errorf("parse address of pod: %w", err)
		}
		addresses = append(addresses, address.Unmap())
		return nil
	}
	err := fields(message, func(number protowire.Number, value []byte, _ uint64) error {
		switch number {
		case networkIP:
			return add(value)
		case networkMore:
			return fields(value, func(number protowire.Number, value []byte, _ uint64) error {
				if number == podIP {
					return add(value)
				}
				return nil
			})
		}
		return nil
	})
	return addresses, err
}

// fields calls fn for the fields of a message: with its bytes, or with its number. Other kinds are skipped.
func fields(message []byte, fn func(number protowire.Number, value []byte, scalar uint64) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errMalformed
		}
		message = message[n:]
		var value []byte
		var scalar uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			scalar, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return errMalformed
		}
		message = message[n:]
		if kind == protowire.BytesType || kind == protowire.VarintType {
			if err := fn(number, value, scalar); err != nil {
				return err
			}
		}
	}
	return nil
}
