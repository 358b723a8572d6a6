package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// user is the user and the groups of a container's processes.
type user struct {
	uid, gid int
	groups   []int
	home     string
}

// user returns the pod's user, or else the image's. As in containerd, the group is the pod's, or else the user's in the
// image's /etc/passwd, or else 0. The groups of /etc/group with the user are added, unless the pod sets Strict.
func (c *container) user() (user, error) {
	sc := c.config.GetLinux().GetSecurityContext()
	name, group, _ := strings.Cut(c.image.Config.User, ":")
	if v := sc.GetRunAsUsername(); v != "" {
		name, group = v, ""
	}
	if v := sc.GetRunAsUser(); v != nil {
		name, group = strconv.FormatInt(v.Value, 10), ""
	}
	if v := sc.GetRunAsGroup(); v != nil {
		group = strconv.FormatInt(v.Value, 10)
	}
	u, name, err := lookUpUser(c.image.Root, name)
	if err != nil {
		return user{}, err
	}
	groups, err := readTable(c.image.Root, "etc/group", 4)
	if err != nil {
		return user{}, err
	}
	if group != "" {
		if u.gid, err = lookUpGroup(groups, group); err != nil {
			return user{}, err
		}
	}
	for _, g := range sc.GetSupplementalGroups() {
		u.groups = append(u.groups, int(g))
	}
	if name != "" && sc.GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Merge {
		u.groups = append(u.groups, memberOf(groups, name, u.groups)...)
	}
	return u, nil
}

// lookUpUser finds a user by name or number, and returns its name if the image has it.
func lookUpUser(root, name string) (user, string, error) {
	if name == "" {
		name = "0"
	}
	users, err := readTable(root, "etc/passwd", 6)
	if err != nil {
		return user{}, "", err
	}
	uid, notNumber := strconv.Atoi(name)
	for _, row := range users {
		if row[0] != name && (notNumber != nil || row[2] != name) {
			continue
		}
		u := user{home: row[5]}
		u.uid, err = strconv.Atoi(row[2])
		if err == nil {
			u.gid, err = strconv.Atoi(row[3])
		}
		if err != nil {
			return user{}, "", fmt.Errorf("read /etc/passwd of the image: %w", err)
		}
		return u, row[0], nil
	}
	if notNumber != nil {
		return user{}, "", fmt.Errorf("the image has no user %s in its /etc/passwd", name)
	}
	return user{uid: uid, home: "/"}, "", nil
}

func lookUpGroup(groups [][]string, name string) (int, error) {
	if gid, err := strconv.Atoi(name); err == nil {
		return gid, nil
	}
	for _, row := range groups {
		if row[0] == name {
			return strconv.Atoi(row[2])
		}
	}
	return 0, fmt.Errorf("the image has no group %s in its /etc/group", name)
}

// memberOf returns the groups that list a user, except those in known.
func memberOf(groups [][]string, name string, known []int) []int {
	var list []int
	for _, row := range groups {
		gid, err := strconv.Atoi(row[2])
		if err == nil && !slices.Contains(known, gid) && slices.Contains(strings.Split(row[3], ","), name) {
			list = append(list, gid)
		}
	}
	return list
}

// readTable reads a file of the image with columns separated by colons. Without the file there are no rows. It ignores short
// rows.
func readTable(root, file string, columns int) ([][]string, error) {
	name, err := securejoin.SecureJoin(root, file)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read /%s of the image: %w", file, err)
	}
	var rows [][]string
	for line := range strings.Lines(string(raw)) {
		if row := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(row) >= columns {
			rows = append(rows, row)
		}
	}
	return rows, nil
}
