//go:build system

package clients

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/ocilb"
)

const (
	tenancy     = "ocid1.tenancy.oc1..test"
	user        = "ocid1.user.oc1..test"
	compartment = "ocid1.compartment.oc1..test"
	// patience is for all calls of a test: the command line reads megabytes of Python for each. They take 30 s on two idle processors, and
	// took
	// 270 s on two that compiled other programs.
	patience = 10 * time.Minute
)

// world is an emulator at a socket, with a configuration for its clients.
type world struct {
	t        *testing.T
	folder   string // with the programs
	config   string
	endpoint string
}

// newWorld returns a world, in which signatures are verified and an old load balancer has a fixed shape.
func newWorld(t *testing.T) *world {
	t.Helper()
	folders, err := filepath.Glob("../../../../bin/cache/oci-clients-*/bin")
	require.NoError(t, err)
	if len(folders) == 0 {
		t.Skip("no bin/cache/oci-clients-*: run make oci-clients")
	}
	folder, err := filepath.Abs(folders[len(folders)-1])
	require.NoError(t, err)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	const fingerprint = "20:3b:97:13:55:1c:5b:0d:d3:37:d8:50:4e:c5:3a:34"
	o := ocilb.DefaultOptions()
	o.Modes.Latency, o.Modes.LatencyTail, o.Modes.Stale = ocilb.Duration(10*time.Millisecond), ocilb.Duration(20*time.Millisecond), 0
	o.Keys = map[string]*rsa.PublicKey{tenancy + "/" + user + "/" + fingerprint: &key.PublicKey}
	emulator := ocilb.New(o)
	server := httptest.NewServer(emulator)
	t.Cleanup(func() {
		emulator.Close()
		server.Close()
	})
	w := &world{t: t, folder: folder, config: filepath.Join(t.TempDir(), "config"), endpoint: server.URL}
	old, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.endpoint+"/_emu/loadBalancers/ocid1.loadbalancer.oc1..old",
		strings.NewReader(`{"compartmentId": "`+compartment+`", "displayName": "old", "fixedShape": "100Mbps"}`))
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(old)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	private := w.config + ".pem"
	require.NoError(t,
		os.WriteFile(private, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600))
	require.NoError(t,
		os.WriteFile(w.config, fmt.Appendf(nil, "[DEFAULT]\ntenancy=%s\nuser=%s\nfingerprint=%s\nkey_file=%s\nregion=us-ashburn-1\n",
			tenancy, user, fingerprint, private), 0o600))
	return w
}

// run runs a program, and returns what it printed, and its error.
func (w *world) run(ctx context.Context, program string, args ...string) (string, error) {
	w.t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(w.folder, program), args...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(w.config), "OCI_CLI_SUPPRESS_FILE_PERMISSIONS_WARNING=True",
		"SUPPRESS_LABEL_WARNING=True")
	var problems strings.Builder
	cmd.Stderr = &problems
	text, err := cmd.Output()
	if err != nil {
		return string(text), fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, problems.String())
	}
	return string(text), nil
}

// TestPythonSDK uses waiters and pages of the library.
func TestPythonSDK(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := w.run(ctx, "python", "sdk.py", w.config, w.endpoint, compartment)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"create ACTIVE flexible 100", "backend set 10.0.0.1:8000 204 1 False", "pages 3 3", "old etag 412 NoEtagMatch",
		"missing 404 NotAuthorizedOrNotFound", "fixed shape 100Mbps None",
		"delete 0",
	}, strings.Split(strings.TrimSpace(strings.ReplaceAll(got, "\t", " ")), "\n"))
}

// TestCommandLine makes a load balancer with the OCI CLI, and deletes it.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	oci := func(args ...string) (string, error) {
		return w.run(ctx, "oci", append([]string{"--config-file", w.config, "--endpoint", w.endpoint, "lb"}, args...)...)
	}
	var lb string
	steps := []struct {
		name    string
		args    []string
		waits   bool
		want    []string
		refusal string
	}{
		{name: "create", waits: true, want: []string{`"lifecycle-state": "ACTIVE"`}, args: []string{
			"load-balancer", "create", "--compartment-id", compartment, "--display-name", "cli", "--shape-name", "flexible",
			"--shape-details", `{"minimumBandwidthInMbps": 10, "maximumBandwidthInMbps": 100}`, "--subnet-ids", `["ocid1.subnet.oc1..a"]`,
		}},
		{
			name: "list", args: []string{"load-balancer", "list", "--compartment-id", compartment, "--display-name", "cli", "--all"},
			want: []string{`"shape-name": "flexible"`},
		},
		{name: "create a backend set", waits: true, args: []string{
			"backend-set", "create", "--load-balancer-id", "LB", "--name", "chat", "--policy", "ROUND_ROBIN", "--health-checker-protocol",
			"HTTP", "--health-checker-url-path", "/health",
		}},
		{
			name: "create a backend", waits: true,
			args: []string{
				"backend", "create", "--load-balancer-id", "LB", "--backend-set-name", "chat", "--ip-address", "10.0.0.1", "--port", "8000",
			},
		},
		{name: "create a listener", waits: true, args: []string{
			"listener", "create", "--load-balancer-id", "LB", "--name", "https", "--default-backend-set-name", "chat", "--port", "443",
			"--protocol", "HTTP",
			"--ssl-certificate-ids", `["ocid1.certificate.oc1..a"]`,
		}},
		{name: "get", args: []string{"load-balancer", "get", "--load-balancer-id", "LB"}, want: []string{
			`"return-code": 200`, `"name": "10.0.0.1:8000"`, `"verify-depth": 1`, `"verify-peer-certificate": false`,
		}},
		{
			name: "pages",
			args: []string{"work-request", "list", "--load-balancer-id", "LB", "--all", "--page-size", "2", "--query", "length(data)"},
			want: []string{"4"},
		},
		{
			name:    "delete a set in use",
			args:    []string{"backend-set", "delete", "--load-balancer-id", "LB", "--backend-set-name", "chat", "--force"},
			refusal: `"status": 400`,
		},
		{
			name:    "a set that does not exist",
			args:    []string{"backend-set", "get", "--load-balancer-id", "LB", "--backend-set-name", "none"},
			refusal: `"code": "NotAuthorizedOrNotFound"`,
		},
		{name: "delete", waits: true, args: []string{"load-balancer", "delete", "--load-balancer-id", "LB", "--force"}},
	}
	for _, s := range steps {
		args := s.args
		if s.waits {
			args = append(args, "--wait-for-state", "SUCCEEDED", "--wait-interval-seconds", "1", "--max-wait-seconds", "60")
		}
		for i := range args {
			args[i] = strings.Replace(args[i], "LB", lb, 1)
		}
		got, err := oci(args...)
		if s.refusal != "" {
			require.ErrorContains(t, err, s.refusal, s.name)
			continue
		}
		require.NoError(t, err, s.name)
		for _, want := range s.want {
			assert.Contains(t, got, want, s.name)
		}
		if s.name == "list" {
			var list struct{ Data []struct{ ID string } }
			require.NoError(t, json.Unmarshal([]byte(got), &list), got)
			require.Len(t, list.Data, 1)
			lb = list.Data[0].ID
		}
	}
}
