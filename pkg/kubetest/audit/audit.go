// Package audit reads the audit log of the API server, and compares the permissions that a chart grants to a program with its requests
// there. It is for clusters with clusterapi.Config.Audit.
package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Program is a program to check.
type Program struct {
	Account  types.NamespacedName // its ServiceAccount
	Selector string               // the labels of its roles
}

// Call is a request for a resource in the audit log.
type Call struct {
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

// Pod returns the replica that sent the request.
func (c *Call) Pod() string {
	if names := c.User.Extra["authentication.kubernetes.io/pod-name"]; len(names) == 1 {
		return names[0]
	}
	return ""
}

// Permission returns the permission for the request: verb group/resource.
func (c *Call) Permission() string {
	resource := c.Object.Resource
	if c.Object.Subresource != "" {
		resource += "/" + c.Object.Subresource
	}
	return permissionName(c.Verb, c.Object.APIGroup, resource)
}

// Writes reports whether the request changes objects.
func (c *Call) Writes() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, c.Verb)
}

// Calls returns the requests of a program since a time, in order, including unfinished watches.
func Calls(t *testing.T, c *cluster.Cluster, p Program, since time.Time) []Call {
	t.Helper()
	c.NeedsOwn(t, "reads the audit log")
	f, err := os.Open(clusterapi.AuditFile(c.Dir))
	require.NoError(t, err)
	defer f.Close()
	user := "system:serviceaccount:" + p.Account.Namespace + ":" + p.Account.Name
	var all []Call
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c Call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			continue // the last line may be incomplete
		}
		if c.User.Username == user && c.Object.Resource != "" && !c.At.Before(since) {
			all = append(all, c)
		}
	}
	require.NoError(t, lines.Err())
	slices.SortStableFunc(all, func(a, b Call) int { return a.At.Compare(b.At) })
	return all
}

// Log reads an audit log while it grows.
type Log struct {
	tb   testing.TB
	file *os.File
	rest []byte // an incomplete line
}

// Follow returns a Log that begins at the end of the cluster's audit log.
func Follow(tb testing.TB, c *cluster.Cluster) *Log {
	tb.Helper()
	f, err := os.Open(clusterapi.AuditFile(c.Dir))
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = f.Close() })
	_, err = f.Seek(0, io.SeekEnd)
	require.NoError(tb, err)
	return &Log{tb: tb, file: f}
}

// Next returns the requests for resources that the API server has answered since the last call, in the order of the answers.
func (l *Log) Next() []Call {
	l.tb.Helper()
	text, err := io.ReadAll(l.file)
	require.NoError(l.tb, err)
	text = append(l.rest, text...)
	end := bytes.LastIndexByte(text, '\n') + 1
	l.rest = bytes.Clone(text[end:])
	var all []Call
	for line := range bytes.Lines(text[:end]) {
		var c Call
		require.NoError(l.tb, json.Unmarshal(line, &c))
		if c.Object.Resource != "" {
			all = append(all, c)
		}
	}
	return all
}

// LeastPrivilege contains the parameters of AssertLeastPrivilege.
type LeastPrivilege struct {
	Program Program
	// Seldom contains permissions that a test may not use, with the reason why the chart grants them.
	Seldom map[string]string
	// Former contains pods of an earlier release: their requests need no permission of this one.
	Former map[string]bool
}

// AssertLeastPrivilege checks that the API server refused no request of a program, and that its roles grant no unused
// permission.
func AssertLeastPrivilege(t *testing.T, c *cluster.Cluster, p LeastPrivilege) {
	t.Helper()
	used, formerly := map[string]bool{}, map[string]bool{}
	for _, call := range Calls(t, c, p.Program, time.Time{}) {
		if p.Former[call.Pod()] {
			formerly[call.Permission()] = true
			continue
		}
		assert.NotEqual(t, 403, call.Response.Code, "%s %s/%s", call.Permission(), call.Object.Namespace, call.Object.Name)
		used[call.Permission()] = true
	}
	granted := grantedPermissions(t, c, p.Program)
	assert.Empty(t, missingPermissions(used, granted), "used, but not granted by the chart")
	maps.Copy(used, formerly)         // one release creates the Lease, and the other finds it
	for permission := range granted { // a watch begins with a list unless the API server streams it
		if of, is := strings.CutPrefix(permission, "list "); is && used["watch "+of] {
			used[permission] = true
		}
	}
	assert.Subset(t, slices.Collect(maps.Keys(p.Seldom)), missingPermissions(granted, used), "granted, but not used")
}

// grantedPermissions returns the permissions of a program's roles.
func grantedPermissions(t *testing.T, c *cluster.Cluster, p Program) map[string]bool {
	t.Helper()
	rbac, mine := c.Clientset().RbacV1(), metav1.ListOptions{LabelSelector: p.Selector}
	clusterRoles, err := rbac.ClusterRoles().List(t.Context(), mine)
	require.NoError(t, err)
	roles, err := rbac.Roles(metav1.NamespaceAll).List(t.Context(), mine)
	require.NoError(t, err)
	var rules []rbacv1.PolicyRule
	for _, r := range clusterRoles.Items {
		rules = append(rules, r.Rules...)
	}
	for _, r := range roles.Items {
		rules = append(rules, r.Rules...)
	}
	granted := map[string]bool{}
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted[permissionName(verb, group, resource)] = true
				}
			}
		}
	}
	require.NotEmpty(t, granted, "roles with the labels %s", p.Selector)
	return granted
}

func permissionName(verb, group, resource string) string {
	return fmt.Sprintf("%s %s/%s", verb, group, resource)
}

// missingPermissions returns the members of one set that are not in another, sorted.
func missingPermissions(from, in map[string]bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(from)), func(p string) bool { return in[p] })
}
