package discovery

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseServer(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]Server{
		"http://10.0.0.1:8000":            {Host: "10.0.0.1", Port: 8000},
		"http://10.0.0.1:8000/":           {Host: "10.0.0.1", Port: 8000},
		"HTTP://VLLM.models.svc:8000":     {Host: "vllm.models.svc", Port: 8000},
		"http://vllm_a":                   {Host: "vllm_a", Port: 80},
		"http://vllm:":                    {Host: "vllm", Port: 80},
		"https://vllm.example.com":        {Host: "vllm.example.com", Port: 443, TLS: true},
		"https://10.0.0.1:8443":           {Host: "10.0.0.1", Port: 8443, TLS: true},
		"http://[fd00::1]:8000":           {Host: "fd00::1", Port: 8000},
		"http://[::ffff:10.0.0.1]:8000":   {Host: "10.0.0.1", Port: 8000},
		"http://127.0.0.1:8000":           {Host: "127.0.0.1", Port: 8000},
		"http://vllm.models.svc.:8000":    {Host: "vllm.models.svc.", Port: 8000},
		"http://xn--bcher-kva.example:80": {Host: "xn--bcher-kva.example", Port: 80},
	} {
		got, err := ParseServer(give)
		require.NoError(t, err, give)
		assert.Equal(t, want, got, give)
	}
	server := Server{Host: "fd00::1", Port: 8000}
	assert.Equal(t, "[fd00::1]:8000", server.Address())
}

func TestWrongURLs(t *testing.T) {
	t.Parallel()
	const noScheme, more, host = "has no scheme: give a URL such as http://10.0.0.1:8000", "has more than a host and a port, but requests bring their own path: give ",
		"it has no valid host: give an address such as 10.0.0.1, [fd00::1], or a DNS name"
	const noHost = "it has an address that no host has: give one such as 10.0.0.1 or [fd00::1]"
	for give, want := range map[string]string{
		"":                              `"" ` + noScheme,
		"10.0.0.1:8000":                 `"10.0.0.1:8000" ` + noScheme,
		"vllm":                          `"vllm" ` + noScheme,
		"grpc://vllm:8000":              `"grpc://vllm:8000" has another scheme than http and https: give one of them`,
		"http://vllm:8000/v1":           `"http://vllm:8000/v1" ` + more + "http://vllm:8000",
		"http://vllm:8000?a=b":          `"http://vllm:8000?a=b" ` + more + "http://vllm:8000",
		"http://vllm:8000/?":            `"http://vllm:8000/?" ` + more + "http://vllm:8000",
		"http://vllm:8000#a":            `"http://vllm:8000#a" ` + more + "http://vllm:8000",
		"http://user:secret@vllm:8000":  `the URL of "vllm:8000" has a user name, which no model server gets: leave it out`,
		"http://user:sec@ret@vllm:port": `the URL of "vllm:port" has a user name, which no model server gets: leave it out`,
		"http://vllm:port":              `"http://vllm:port" is not a URL such as http://10.0.0.1:8000: invalid port ":port" after host`,
		"http://vllm:0":                 `"http://vllm:0" has no valid port: give one from 1 to 65535`,
		"http://vllm:65536":             `"http://vllm:65536" has no valid port: give one from 1 to 65535`,
		"http://:8000":                  `"http://:8000": ` + host,
		"http://10.0.0.256:8000":        `"http://10.0.0.256:8000": ` + host,
		"http://vllm.10.:8000":          `"http://vllm.10.:8000": ` + host,
		"http://bücher:8000":            `"http://bücher:8000": ` + host,
		"http://fd00::1:8000":           `"http://fd00::1:8000" is not a URL such as http://10.0.0.1:8000: invalid port "::1:8000" after host`,
		"http://169.254.169.254":        `"http://169.254.169.254": ` + noHost,
		"http://0.0.0.0:8000":           `"http://0.0.0.0:8000": ` + noHost,
		"http://[fe80::1%25eth0]:8000":  `"http://[fe80::1%25eth0]:8000": ` + noHost,
	} {
		_, err := ParseServer(give)
		require.EqualError(t, err, want)
	}
	_, err := ParseServer("http://" + strings.Repeat("a", maxName+1))
	require.ErrorContains(t, err, host)
}
