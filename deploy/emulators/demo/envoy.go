package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// ports are the ports that Envoy needs to know. For its own others, the system chooses.
type ports struct {
	gateway, picker int
	servers         []int
}

// localBootstrap returns the bootstrap in the ConfigMap of a manifest, with the addresses of this machine.
func localBootstrap(manifest []byte, at ports) (map[string]any, error) {
	first, _, _ := strings.Cut(string(manifest), "\n---\n")
	var config struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal([]byte(first), &config); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	var bootstrap map[string]any
	if err := yaml.Unmarshal([]byte(config.Data["envoy.yaml"]), &bootstrap); err != nil {
		return nil, fmt.Errorf("decode envoy.yaml: %w", err)
	}
	resources, _ := bootstrap["static_resources"].(map[string]any)
	listeners, _ := resources["listeners"].([]any)
	clusters, _ := resources["clusters"].([]any)
	if len(listeners) != 2 || len(clusters) != 2 {
		return nil, errors.New("bootstrap must have the listeners http and ready, and the clusters picker and pool")
	}
	bootstrap["admin"] = map[string]any{"address": socket(0)}
	for _, l := range listeners {
		listener, _ := l.(map[string]any)
		port, ok := map[any]int{"http": at.gateway, "ready": 0}[listener["name"]]
		if !ok {
			return nil, fmt.Errorf("unknown listener %v", listener["name"])
		}
		listener["address"] = socket(port)
	}
	for _, c := range clusters {
		cluster, _ := c.(map[string]any)
		targets := map[any][]int{"picker": {at.picker}, "pool": at.servers}[cluster["name"]]
		if targets == nil {
			return nil, fmt.Errorf("unknown cluster %v", cluster["name"])
		}
		setTargets(cluster, targets)
	}
	return bootstrap, nil
}

// setTargets replaces the addresses of an Envoy cluster, which are DNS names in a Kubernetes cluster.
func setTargets(cluster map[string]any, targets []int) {
	for _, dns := range []string{"dns_lookup_family", "dns_refresh_rate", "dns_failure_refresh_rate"} {
		delete(cluster, dns)
	}
	var endpoints []any
	for _, port := range targets {
		endpoints = append(endpoints, map[string]any{"endpoint": map[string]any{"address": socket(port)}})
	}
	cluster["type"] = "STATIC"
	cluster["load_assignment"] = map[string]any{
		"cluster_name": cluster["name"], "endpoints": []any{map[string]any{"lb_endpoints": endpoints}},
	}
}

func socket(port int) map[string]any {
	return map[string]any{"socket_address": map[string]any{"address": localhost, "port_value": port}}
}

// listenerPorts returns the ports of the listeners http and ready from Envoy's admin endpoint /listeners?format=json, which has a listener
// when its port is open.
func listenerPorts(answer []byte) (map[string]int, error) {
	var decoded struct {
		Statuses []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Port int `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(answer, &decoded); err != nil {
		return nil, fmt.Errorf("decode listeners: %w", err)
	}
	found := map[string]int{}
	for _, s := range decoded.Statuses {
		found[s.Name] = s.Address.Socket.Port
	}
	for _, name := range []string{"http", "ready"} {
		if found[name] == 0 {
			return nil, fmt.Errorf("listener %s has no port yet", name)
		}
	}
	return found, nil
}
