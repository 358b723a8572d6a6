package ingress_test

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// call is a request of the ingress-reconciler in the audit log of the API server.
type call struct {
	At   time.Time `json:"requestReceivedTimestamp"`
	Verb string
	User struct {
		Username string
		Extra    map[string][]string
	}
	Object struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	} `json:"objectRef"`
	Response struct{ Code int } `json:"responseStatus"`
}

// pod returns the replica that sent the request.
func (c *call) pod() string {
	if names := c.User.Extra["authentication.kubernetes.io/pod-name"]; len(names) == 1 {
		return names[0]
	}
	return ""
}

// resource returns the resource and subresource of the request.
func (c *call) resource() string {
	if c.Object.Subresource != "" {
		return c.Object.Resource + "/" + c.Object.Subresource
	}
	return c.Object.Resource
}

func (c *call) writes() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, c.Verb)
}

// calls returns the requests of the ingress-reconciler since a time, in order. Watches that have not ended are among them.
func (s *system) calls(t *testing.T, since time.Time) []call {
	t.Helper()
	s.NeedsOwn(t, "reads the audit log")
	f, err := os.Open(clusterapi.AuditFile(s.Dir))
	require.NoError(t, err)
	defer f.Close()
	const user = "system:serviceaccount:" + stack.ReconcilerNamespace + ":" + stack.Reconciler
	var all []call
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			continue // the last line may be incomplete
		}
		if c.User.Username == user && c.Object.Resource != "" && !c.At.Before(since) {
			all = append(all, c)
		}
	}
	require.NoError(t, lines.Err())
	slices.SortStableFunc(all, func(a, b call) int { return a.At.Compare(b.At) })
	return all
}

// objectWrites returns the writes of objects and conditions, without Leases and Events.
func objectWrites(all []call) []call {
	return slices.DeleteFunc(slices.Clone(all), func(c call) bool {
		return !c.writes() || slices.Contains([]string{"leases", "events"}, c.Object.Resource)
	})
}
