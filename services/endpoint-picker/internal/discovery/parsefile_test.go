package discovery

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

func describeInFile(name, address string, labels map[string]string) endpoint.Description {
	namespace, pod, found := strings.Cut(name, "/")
	if !found {
		namespace, pod = "default", name
	}
	return endpoint.Description{Identity: endpoint.Identity{Namespace: namespace, Pod: pod, Address: netip.MustParseAddrPort(address)}, Labels: labels}
}

func withMetrics(d endpoint.Description, port uint16) endpoint.Description {
	d.MetricsPort = port
	return d
}

func TestParseRefusesPortsOfMetricsPages(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]string{
		"metricsPort: 0":                                `endpoints[0].metricsPort: "0" is not a port`,
		"metricsHost: 10.0.0.2:8002":                    `endpoints[0].metricsHost: "10.0.0.2:8002" is not a port of the endpoint's address: give its port as metricsPort`,
		"metricsHost: vllm:8002":                        "give its port as metricsPort",
		"metricsHost: 10.0.0.1":                         "give its port as metricsPort",
		"metricsHost: 10.0.0.1:8002, metricsPort: 8002": "metricsPort is set, too: keep that one",
	} {
		_, err := parseFile([]byte("endpoints: [{name: a, address: 10.0.0.1, port: 1, " + give + "}]"))
		assert.ErrorContains(t, err, want, give)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give string
		want []endpoint.Description
	}{
		{name: "none", give: "endpoints: []"},
		{name: "none, after a mark and a comment", give: "# later\n---\nendpoints: []\n...\n"},
		{
			name: "port as a number or a string, by address",
			give: `
endpoints:
- {name: b, address: 10.0.0.10, port: 8000}
- name: a
  address: "10.0.0.9"
  port: "8000"
`,
			want: []endpoint.Description{describeInFile("a", "10.0.0.9:8000", nil), describeInFile("b", "10.0.0.10:8000", nil)},
		},
		{
			name: "IPv6 in every spelling",
			give: `
endpoints:
- {name: a, address: "fd00::1", port: 1}
- {name: b, address: '[FD00:0::2]', port: 65535}
- {name: c, address: fd00::3, port: 8000}
- {name: d, address: "::ffff:10.0.0.1", port: 8000}
`,
			want: []endpoint.Description{
				describeInFile("d", "10.0.0.1:8000", nil), describeInFile("a", "[fd00::1]:1", nil),
				describeInFile("b", "[fd00::2]:65535", nil), describeInFile("c", "[fd00::3]:8000", nil),
			},
		},
		{
			name: "names are unique in their namespace",
			give: "endpoints: [{name: a, namespace: x, address: 10.0.0.1, port: 1}, {name: a, namespace: y, address: 10.0.0.1, port: 2}]",
			want: []endpoint.Description{describeInFile("x/a", "10.0.0.1:1", nil), describeInFile("y/a", "10.0.0.1:2", nil)},
		},
		{
			name: "names and labels as they are written",
			give: "endpoints: [{name: 007, address: 10.0.0.1, port: 1, labels: {version: 1.10, gpu: true, llm-d.ai/role: decode, empty: ''}}]",
			want: []endpoint.Description{describeInFile("007", "10.0.0.1:1", map[string]string{"version": "1.10", "gpu": "true", "llm-d.ai/role": "decode", "empty": ""})},
		},
		{
			name: "ports of metrics pages",
			give: "endpoints: [{name: a, address: 10.0.0.1, port: 1, metricsPort: '8002'}, {name: b, address: fd00::1, port: 1, metricsHost: '[fd00::1]:8003'}]",
			want: []endpoint.Description{withMetrics(describeInFile("a", "10.0.0.1:1", nil), 8002), withMetrics(describeInFile("b", "[fd00::1]:1", nil), 8003)},
		},
		{name: "no labels", give: "endpoints: [{name: a, address: 10.0.0.1, port: 1, labels: }]", want: []endpoint.Description{describeInFile("a", "10.0.0.1:1", nil)}},
		{
			name: "labels by an alias",
			give: "endpoints: [{name: a, address: 10.0.0.1, port: 1, labels: &l {r: d}}, {name: b, address: 10.0.0.2, port: 1, labels: *l}]",
			want: []endpoint.Description{describeInFile("a", "10.0.0.1:1", map[string]string{"r": "d"}), describeInFile("b", "10.0.0.2:1", map[string]string{"r": "d"})},
		},
		{
			name: "JSON",
			give: `{"endpoints": [{"name": "a", "address": "10.0.0.1", "port": "8000", "labels": {"r": "d"}}]}`,
			want: []endpoint.Description{describeInFile("a", "10.0.0.1:8000", map[string]string{"r": "d"})},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseFile([]byte(tt.give))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestParseNamesEveryProblemWithItsLine(t *testing.T) {
	t.Parallel()
	const good = "name: a, address: 10.0.0.1, port: 1"
	tests := []struct {
		name string
		give string
		want string
	}{
		{name: "empty", want: "it is empty: without endpoints, give endpoints: []"},
		{name: "only a comment", give: "# nothing\n", want: "it is empty: without endpoints, give endpoints: []"},
		{name: "only a mark", give: "---\n", want: "line 2, column 1: endpoints: it is missing: without endpoints, give an empty list"},
		{name: "a list", give: "\n- name: a", want: "line 2, column 1: a list has no fields"},
		{name: "no list", give: "{}", want: "line 1, column 1: endpoints: it is missing: without endpoints, give an empty list"},
		{name: "cut after the first line", give: "endpoints:\n", want: "line 1, column 11: endpoints: it is missing: without endpoints, give an empty list"},
		{name: "a mapping of endpoints", give: "endpoints:\n  a: {}", want: "line 2, column 3: endpoints: a mapping is not a list"},
		{name: "not YAML", give: "endpoints:\n- {name: a", want: "line 1, column 1: it is not YAML: did not find expected ',' or '}'"},
		{name: "not text", give: "endpoints: \x01", want: "it is not YAML: control characters are not allowed"},
		{name: "two documents", give: "endpoints: []\n---\nendpoints: []", want: "line 2, column 1: there is more than one document: keep one"},
		{name: "another field", give: "endpoints: []\nendpoint: []", want: `line 2, column 1: endpoint: unknown field: did you mean "endpoints"?`},
		{name: "the list twice", give: "endpoints: []\nendpoints: []", want: "line 2, column 1: endpoints: it is listed twice, first in line 1: keep one"},
		{name: "an endpoint that is a word", give: "endpoints:\n- 10.0.0.1:8000", want: `line 2, column 3: endpoints[0]: "10.0.0.1:8000" has no fields`},
		{
			name: "a misspelt field", give: "endpoints:\n- {" + good + "}\n- {name: b, ip: 10.0.0.1, port: 1}",
			want: "line 3, column 3: endpoints[1].address: it is missing\nline 3, column 13: endpoints[1].ip: unknown field: use one of name, namespace, address, port, metricsPort, metricsHost, labels",
		},
		{name: "a field twice", give: "endpoints: [{" + good + ", port: 2}]", want: "line 1, column 51: endpoints[0].port: it is listed twice, first in line 1: keep one"},
		{name: "a merge", give: "endpoints: [{<<: {name: a}, address: 10.0.0.1, port: 1}]", want: "line 1, column 13: endpoints[0].name: it is missing\nline 1, column 14: endpoints[0].<<: merge keys are not supported: write the fields out"},
		{name: "no name", give: "endpoints: [{name: '', address: 10.0.0.1, port: 1}]", want: "line 1, column 20: endpoints[0].name: it is missing"},
		{name: "null", give: "endpoints: [{name: null, address: ~, port: }]", want: "line 1, column 20: endpoints[0].name: it is missing\nline 1, column 35: endpoints[0].address: it is missing\nline 1, column 44: endpoints[0].port: it is missing"},
		{name: "a name that is a list", give: "endpoints: [{name: [a], address: 10.0.0.1, port: 1}]", want: "line 1, column 20: endpoints[0].name: a list is not a string"},
		{name: "a name with a slash", give: "endpoints: [{name: ns/a, address: 10.0.0.1, port: 1}]", want: `line 1, column 20: endpoints[0].name: "ns/a" is not a name: give at most 253 characters, without spaces and slashes`},
		{name: "a namespace with a space", give: "endpoints: [{" + good + ", namespace: a b}]", want: `line 1, column 62: endpoints[0].namespace: "a b" is not a name: give at most 253 characters, without spaces and slashes`},
		{name: "a host name", give: "endpoints: [{name: a, address: localhost, port: 1}]", want: `line 1, column 32: endpoints[0].address: "localhost" is not the IP address of a host: give one such as 10.0.0.1 or fd00::1`},
		{name: "an address with its port", give: "endpoints: [{name: a, address: '10.0.0.1:80', port: 1}]", want: `line 1, column 32: endpoints[0].address: "10.0.0.1:80" is not the IP address of a host: give one such as 10.0.0.1 or fd00::1`},
		{name: "brackets for IPv4", give: "endpoints: [{name: a, address: '[10.0.0.1]', port: 1}]", want: `line 1, column 32: endpoints[0].address: "[10.0.0.1]" is not the IP address of a host: give one such as 10.0.0.1 or fd00::1`},
		{name: "a zone", give: "endpoints: [{name: a, address: 'fe80::1%eth0', port: 1}]", want: `line 1, column 32: endpoints[0].address: "fe80::1%eth0" is not the IP address of a host: give one such as 10.0.0.1 or fd00::1`},
		{name: "every address", give: "endpoints: [{name: a, address: 0.0.0.0, port: 1}]", want: `line 1, column 32: endpoints[0].address: "0.0.0.0" is not the IP address of a host: give one such as 10.0.0.1 or fd00::1`},
		{name: "every address, mapped", give: "endpoints: [{name: a, address: '::ffff:0.0.0.0', port: 1}]", want: `line 1, column 32: endpoints[0].address: "::ffff:0.0.0.0" is not the IP address of a host: give one such as 10.0.0.1 or fd00::1`},
		{name: "a link-local address", give: "endpoints: [{name: a, address: 169.254.169.254, port: 80}]", want: `line 1, column 32: endpoints[0].address: "169.254.169.254" is not the IP address of a host: give one such as 10.0.0.1 or fd00::1`},
		{name: "a link-local address, mapped", give: "endpoints: [{name: a, address: '::ffff:169.254.169.254', port: 80}]", want: `line 1, column 32: endpoints[0].address: "::ffff:169.254.169.254" is not the IP address of a host: give one such as 10.0.0.1 or fd00::1`},
		{name: "a link-local address of IPv6", give: "endpoints: [{name: a, address: 'fe80::1', port: 80}]", want: `line 1, column 32: endpoints[0].address: "fe80::1" is not the IP address of a host: give one such as 10.0.0.1 or fd00::1`},
		{name: "a long address", give: "endpoints: [{name: a, address: " + strings.Repeat("1", 100) + ", port: 1}]", want: `line 1, column 32: endpoints[0].address: "111111111111111111111111111111111111111111111111111111111111" is not the IP address of a host: give one such as 10.0.0.1 or fd00::1`},
		{name: "port 0", give: "endpoints: [{name: a, address: 10.0.0.1, port: 0}]", want: `line 1, column 48: endpoints[0].port: "0" is not a port: give one from 1 to 65535`},
		{name: "a large port", give: "endpoints: [{name: a, address: 10.0.0.1, port: 65536}]", want: `line 1, column 48: endpoints[0].port: "65536" is not a port: give one from 1 to 65535`},
		{name: "a port with a fraction", give: "endpoints: [{name: a, address: 10.0.0.1, port: 80.0}]", want: `line 1, column 48: endpoints[0].port: "80.0" is not a port: give one from 1 to 65535`},
		{name: "a port by name", give: "endpoints: [{name: a, address: 10.0.0.1, port: http}]", want: `line 1, column 48: endpoints[0].port: "http" is not a port: give one from 1 to 65535`},
		{name: "labels that are a list", give: "endpoints: [{" + good + ", labels: [a]}]", want: "line 1, column 59: endpoints[0].labels: a list has no fields"},
		{name: "a label twice", give: "endpoints: [{" + good + ", labels: {r: a, r: b}}]", want: "line 1, column 66: endpoints[0].labels.r: it is listed twice, first in line 1: keep one"},
		{name: "a label without a value", give: "endpoints: [{" + good + ", labels: {r: }}]", want: "line 1, column 63: endpoints[0].labels.r: it has no value"},
		{name: "one name twice", give: "endpoints:\n- {" + good + "}\n- {name: a, address: 10.0.0.2, port: 1}", want: "line 3, column 3: endpoints[1]: endpoint default/a is listed twice, first as endpoints[0]"},
		{name: "one address twice", give: "endpoints:\n- {" + good + "}\n- {name: b, address: '::ffff:10.0.0.1', port: '1'}", want: "line 3, column 3: endpoints[1]: address 10.0.0.1:1 is listed twice, first as endpoints[0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseFile([]byte(tt.give))
			require.EqualError(t, err, tt.want)
			assert.Nil(t, got)
		})
	}
}

func TestParseNamesTheFirstProblemsOfMany(t *testing.T) {
	t.Parallel()
	_, err := parseFile([]byte("endpoints:\n" + strings.Repeat("- word\n", 115)))
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 101)
	assert.Equal(t, `line 101, column 3: endpoints[99]: "word" has no fields`, lines[99])
	assert.Equal(t, "and 15 more", lines[100])
}

func TestParseOfTheLargestFile(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("endpoints:\n")
	n := 0
	for ; b.Len() < maxFileBytes-100; n++ {
		fmt.Fprintf(&b, "- {name: p%d, address: 10.%d.%d.%d, port: 8000}\n", n, n>>16, n>>8&255, n&255)
	}
	b.WriteString(strings.Repeat("#", maxFileBytes-b.Len()))
	got, err := parseFile([]byte(b.String()))
	require.NoError(t, err)
	assert.Len(t, got, n)
	_, err = parseFile([]byte(b.String() + "#"))
	require.EqualError(t, err, "it has 1048577 bytes: the maximum is 1048576")
}

func TestParseOfAliasesThatGrow(t *testing.T) {
	t.Parallel()
	bomb := "endpoints: &a [1]\n"
	for c := 'b'; c < 'z'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	_, err := parseFile([]byte(bomb))
	require.ErrorContains(t, err, "unknown field")
	_, err = parseFile([]byte("endpoints: &a [*a]"))
	require.Error(t, err)

	// The labels of one endpoint, repeated for others: 5000 times 5000 values in 300 kB.
	var large strings.Builder
	large.WriteString("endpoints:\n- {name: a, address: 10.1.0.0, port: 1, labels: &l {")
	for i := range 5000 {
		fmt.Fprintf(&large, "l%d: v, ", i)
	}
	large.WriteString("}}\n")
	for i := range 5000 {
		fmt.Fprintf(&large, "- {name: b%d, address: 10.0.%d.%d, port: 1, labels: *l}\n", i, i>>8, i&255)
	}
	_, err = parseFile([]byte(large.String()))
	require.ErrorContains(t, err, "it has more than 524288 values: write fewer, or use fewer aliases")
}

// FuzzParse checks that a file is refused, or that its endpoints are what they promise to be and mean the same when
// they are written out as JSON.
func FuzzParse(f *testing.F) {
	f.Add([]byte("endpoints: [{name: a, namespace: n, address: '[fd00::1]', port: '8000', labels: {r: d}}]"))
	f.Add([]byte("endpoints:\n- {name: a, address: 10.0.0.1, port: 0x10}\n- &x {name: b, address: 10.0.0.2, port: 010}\n- *x\n"))
	f.Add([]byte("%YAML 1.1\n---\n? endpoints\n: !!seq []\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := parseFile(data)
		if err != nil {
			require.Nil(t, found)
			require.NotEmpty(t, err.Error())
			return
		}
		type entry struct {
			Name      string            `json:"name"`
			Namespace string            `json:"namespace"`
			Address   string            `json:"address"`
			Port      uint16            `json:"port"`
			Labels    map[string]string `json:"labels"`
		}
		file := struct {
			Endpoints []entry `json:"endpoints"`
		}{Endpoints: []entry{}}
		names, addresses := map[string]bool{}, map[netip.AddrPort]bool{}
		for _, d := range found {
			require.True(t, d.Address.IsValid() && d.Address.Port() > 0 && !d.Address.Addr().Is4In6())
			require.NotEmpty(t, d.Pod)
			require.NotEmpty(t, d.Namespace)
			require.False(t, names[d.Namespace+"/"+d.Pod] || addresses[d.Address])
			names[d.Namespace+"/"+d.Pod], addresses[d.Address] = true, true
			for key, value := range d.Labels {
				if !utf8.ValidString(key) || !utf8.ValidString(value) {
					t.Skip("JSON has no such text")
				}
			}
			file.Endpoints = append(file.Endpoints, entry{d.Pod, d.Namespace, d.Address.Addr().String(), d.Address.Port(), d.Labels})
		}
		written, err := json.Marshal(file)
		require.NoError(t, err)
		if len(written) > maxFileBytes {
			return
		}
		again, err := parseFile(written)
		require.NoError(t, err, "%s", written)
		require.Len(t, again, len(found))
		for i := range found {
			require.Equal(t, found[i].Identity, again[i].Identity)
			require.Len(t, again[i].Labels, len(found[i].Labels))
			for key, value := range found[i].Labels {
				require.Equal(t, value, again[i].Labels[key])
			}
		}
	})
}
