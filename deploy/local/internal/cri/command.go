package cri

import (
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.dev/deploy/local/internal/shim"
)

// shimCapabilities are the capabilities that the shim needs to build a root in a nested user namespace.
var shimCapabilities = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE, unix.CAP_SYS_CHROOT, unix.CAP_FOWNER, unix.CAP_CHOWN,
}

// command prepares the shim that will run argv in c's new namespaces.
func (r *Runtime) command(c *container, s *sandbox, argv []string) (*exec.Cmd, error) {
	u, err := c.user()
	if err != nil {
		return nil, err
	}
	file, err := r.writeSpec(c, s, argv, c.dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(r.Shim, "run", file)
	cmd.Dir, cmd.Env = "/", shimEnv
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, Setsid: true,
	}
	if !r.UserRange && u.uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: u.uid, HostID: 0, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: u.gid, HostID: 0, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = shimCapabilities
	}
	return cmd, nil
}

// shimEnv keeps the short-lived shim from starting threads and collections; the program gets its own environment.
var shimEnv = []string{"GOMAXPROCS=1", "GOGC=off"}

// writeSpec writes the shim's spec to dir and returns the file's name.
func (r *Runtime) writeSpec(c *container, s *sandbox, argv []string, dir string) (string, error) {
	u, err := c.user()
	if err != nil {
		return "", err
	}
	sc := c.config.GetLinux().GetSecurityContext()
	spec := &shim.Spec{
		Root: filepath.Join(dir, "root"), Image: c.image.Root,
		Files: map[string]string{"etc/resolv.conf": resolvConf(s.config.DnsConfig), "etc/hostname": s.config.Hostname + "\n"},
		Args:  argv, Env: environment(c, s, u.home), Cwd: cmp.Or(c.config.WorkingDir, c.image.Config.WorkingDir),
		Hostname: s.config.Hostname, UID: u.uid, GID: u.gid, Groups: u.groups, SetUser: r.UserRange, ReadOnlyRoot: sc.GetReadonlyRootfs(),
		NoNewPrivs: sc.GetNoNewPrivs(), Masked: sc.GetMaskedPaths(), ReadOnly: sc.GetReadonlyPaths(),
	}
	if spec.Capabilities, err = capabilities(sc); err != nil {
		return "", err
	}
	if !r.UserRange && u.uid != 0 { // to the kernel this user is root outside of the container's own user namespace, where exec starts
		spec.Capabilities = 0
	}
	if c.cgroup != nil {
		spec.Cgroups = c.cgroup.Folders()
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

// defaultPath is the usual default of container runtimes for an image without a PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func environment(c *container, s *sandbox, home string) []string {
	env := []string{"PATH=" + defaultPath, "HOSTNAME=" + s.config.Hostname, "HOME=" + home}
	env = append(env, c.image.Config.Env...)
	for _, e := range c.config.Envs {
		env = append(env, e.Key+"="+string(e.Value))
	}
	return lastOfEach(env)
}

// lastOfEach keeps the last value of each variable: programs would use the first.
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
