package cri

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/imagestore"
	"fairlead.dev/deploy/local/internal/shim"
)

// shimCapabilities are what the shim needs to build a root in a nested user namespace.
var shimCapabilities = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE, unix.CAP_SYS_CHROOT, unix.CAP_FOWNER, unix.CAP_CHOWN}

// user is who a container's processes are.
type user struct {
	uid, gid int
	groups   []int
}

func (c *container) user() user {
	sc := c.config.GetLinux().GetSecurityContext()
	u := user{uid: c.image.UserID(), gid: c.image.UserID()}
	if v := sc.GetRunAsUser(); v != nil {
		u.uid, u.gid = int(v.Value), 0 // as containerd: the group is 0 unless given
	}
	if v := sc.GetRunAsGroup(); v != nil {
		u.gid = int(v.Value)
	}
	for _, g := range sc.GetSupplementalGroups() {
		u.groups = append(u.groups, int(g))
	}
	return u
}

// command prepares the shim for argv in c's namespaces-to-be.
func (r *Runtime) command(c *container, s *sandbox, argv []string) (*exec.Cmd, error) {
	file, err := r.writeSpec(c, s, argv, c.dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(r.Shim, "run", file)
	cmd.Dir, cmd.Env = "/", shimEnv
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, Setsid: true}
	if u := c.user(); !r.UserRange && u.uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: u.uid, HostID: 0, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: u.gid, HostID: 0, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = shimCapabilities
	}
	return cmd, nil
}

// shimEnv keeps the short-lived shim from starting threads and collections; the program gets an environment of its own.
var shimEnv = []string{"GOMAXPROCS=1", "GOGC=off"}

// writeSpec writes what the shim is to do into dir and returns the file's name.
func (r *Runtime) writeSpec(c *container, s *sandbox, argv []string, dir string) (string, error) {
	u, sc := c.user(), c.config.GetLinux().GetSecurityContext()
	spec := &shim.Spec{
		Root: filepath.Join(dir, "root"), Layers: []string{c.image.Root}, Files: baseFiles(u, s.config.DnsConfig),
		Args: argv, Env: environment(c, s), Cwd: c.config.WorkingDir, Hostname: s.config.Hostname,
		UID: u.uid, GID: u.gid, Groups: u.groups, SetUser: r.UserRange,
		ReadOnlyRoot: sc.GetReadonlyRootfs(), NoNewPrivs: sc.GetNoNewPrivs(),
		Masked: sc.GetMaskedPaths(), ReadOnly: sc.GetReadonlyPaths(),
	}
	var err error
	if spec.Capabilities, err = capabilities(sc); err != nil {
		return "", err
	}
	if !r.UserRange && u.uid != 0 { // to the kernel this user is root outside of the container's own user namespace, where exec starts
		spec.Capabilities = 0
	}
	if c.cgroup != nil {
		spec.Cgroups = c.cgroup.Folders()
	}
	if _, err := os.Stat(r.CACertificates); err == nil {
		spec.Mounts = append(spec.Mounts, shim.Mount{Source: r.CACertificates, Target: "/etc/ssl/certs/ca-certificates.crt", ReadOnly: true})
	}
	for _, m := range c.config.Mounts {
		spec.Mounts = append(spec.Mounts, shim.Mount{Source: m.HostPath, Target: m.ContainerPath, ReadOnly: m.Readonly})
	}
	file := filepath.Join(dir, "spec.json")
	if err := spec.Write(file); err != nil {
		return "", fmt.Errorf("write container spec: %w", err)
	}
	return file, nil
}

func environment(c *container, s *sandbox) []string {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin:/", "HOSTNAME=" + s.config.Hostname, "HOME=/tmp"}
	env = append(env, c.image.Config.Env...)
	for _, e := range c.config.Envs {
		env = append(env, e.Key+"="+string(e.Value))
	}
	return lastOfEach(env)
}

// lastOfEach keeps one value a variable, the last: of two, a program takes the first.
func lastOfEach(env []string) []string {
	at := map[string]int{}
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if i, ok := at[name]; ok {
			out[i] = e
			continue
		}
		at[name] = len(out)
		out = append(out, e)
	}
	return out
}

// baseFiles are the files of the empty root that every image stands on.
func baseFiles(u user, dns *runtimeapi.DNSConfig) map[string]string {
	users := "root:x:0:0:root:/:/sbin/nologin\n"
	groups := "root:x:0:\n"
	ids := []int{imagestore.DefaultUser}
	if u.uid != 0 && u.uid != imagestore.DefaultUser {
		ids = append(ids, u.uid)
	}
	for i, id := range ids {
		name := []string{"nonroot", "user"}[i]
		users += fmt.Sprintf("%s:x:%d:%d:%s:/tmp:/sbin/nologin\n", name, id, id, name)
		groups += fmt.Sprintf("%s:x:%d:\n", name, id)
	}
	return map[string]string{
		"etc/passwd": users, "etc/group": groups, "etc/resolv.conf": resolvConf(dns),
		"etc/nsswitch.conf": "hosts: files dns\n",
	}
}

func resolvConf(d *runtimeapi.DNSConfig) string {
	var b strings.Builder
	for _, s := range d.GetServers() {
		fmt.Fprintln(&b, "nameserver", s)
	}
	if len(d.GetSearches()) > 0 {
		fmt.Fprintln(&b, "search", strings.Join(d.Searches, " "))
	}
	if len(d.GetOptions()) > 0 {
		fmt.Fprintln(&b, "options", strings.Join(d.Options, " "))
	}
	return b.String()
}
