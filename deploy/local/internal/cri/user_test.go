package cri

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/imagestore"
)

func securityContext(sc *runtimeapi.LinuxContainerSecurityContext) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: sc}}
}

// rootWith is an image with two tables of users and groups.
func rootWith(t *testing.T, users, groups string) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc", "passwd"), []byte(users), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc", "group"), []byte(groups), 0o644))
	return root
}

func TestContainer_User(t *testing.T) {
	t.Parallel()
	full := rootWith(t, "root:x:0:0:root:/root:/bin/sh\n# a comment\napp:x:1000:50:App:/home/app:/bin/sh\n", "root:x:0:\nstaff:x:50:\nvideo:x:44:app,other\nbroken\n")
	number := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	type context = runtimeapi.LinuxContainerSecurityContext
	tests := []struct {
		name  string
		pod   *context
		image string
		root  string
		want  user
	}{
		{name: "an image that names none is root's", root: full, want: user{home: "/root"}},
		{name: "an image without tables", image: "1000", want: user{uid: 1000, home: "/"}},
		{name: "an image without tables, with a group", image: "1000:7", want: user{uid: 1000, gid: 7, home: "/"}},
		{name: "a number that the image knows", image: "1000", root: full, want: user{uid: 1000, gid: 50, groups: []int{44}, home: "/home/app"}},
		{name: "a name", image: "app", root: full, want: user{uid: 1000, gid: 50, groups: []int{44}, home: "/home/app"}},
		{name: "a name and a group's", image: "app:video", root: full, want: user{uid: 1000, gid: 44, groups: []int{44}, home: "/home/app"}},
		{name: "the pod's user wins, with its own group", pod: &context{RunAsUser: number(1000)}, image: "0:7", root: full,
			want: user{uid: 1000, gid: 50, groups: []int{44}, home: "/home/app"}},
		{name: "a user of the pod that the image does not know is in group 0", pod: &context{RunAsUser: number(1234)}, image: "app:video", root: full, want: user{uid: 1234, home: "/"}},
		{name: "a name from the pod", pod: &context{RunAsUsername: "app"}, root: full, want: user{uid: 1000, gid: 50, groups: []int{44}, home: "/home/app"}},
		{name: "groups of the pod", pod: &context{RunAsUser: number(1000), RunAsGroup: number(2), SupplementalGroups: []int64{3, 44}}, root: full,
			want: user{uid: 1000, gid: 2, groups: []int{3, 44}, home: "/home/app"}},
		{name: "groups of the pod only", pod: &context{RunAsUser: number(1000), SupplementalGroupsPolicy: runtimeapi.SupplementalGroupsPolicy_Strict}, root: full,
			want: user{uid: 1000, gid: 50, home: "/home/app"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := tt.root
			if root == "" {
				root = t.TempDir()
			}
			c := &container{config: securityContext(tt.pod), image: &imagestore.Image{Root: root, Config: imagestore.Config{User: tt.image}}}
			got, err := c.user()
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestContainer_UserThatTheImageDoesNotHave(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, image, users, want string }{
		{name: "user", image: "app", want: "the image has no user app in its /etc/passwd"},
		{name: "group", image: "1:staff", want: "the image has no group staff in its /etc/group"},
		{name: "broken table", image: "app", users: "app:x:many:0:::\n", want: "read /etc/passwd of the image: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &container{config: securityContext(nil), image: &imagestore.Image{Root: rootWith(t, tt.users, ""), Config: imagestore.Config{User: tt.image}}}
			_, err := c.user()
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// A link of the image must not show the users of this machine.
func TestReadTable_StaysInTheImage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.Symlink("/etc", filepath.Join(root, "etc")))
	_, err := readTable(root, "etc/passwd", 6)
	require.ErrorContains(t, err, "too many levels of symbolic links")
	root = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	require.NoError(t, os.Symlink("/../../etc/group", filepath.Join(root, "etc", "passwd")))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc", "group"), []byte("the:image\n"), 0o644))
	rows, err := readTable(root, "etc/passwd", 2)
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"the", "image"}}, rows)
}
