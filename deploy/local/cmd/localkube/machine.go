package main

import (
	"context"
	"fmt"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// machineInfo answers the kubelet's remaining questions to cAdvisor: the size of the machine and the usage of its disk.
type machineInfo struct {
	name   string
	cores  int
	memory uint64 // bytes
	dir    string // the node's disk
	boot   time.Time
}

// Start does nothing.
func (m *machineInfo) Start() error { return nil }

// ContainerInfoV2 returns one sample of the root cgroup for any name: there are no others.
func (m *machineInfo) ContainerInfoV2(name string, _ cadvisorapi.RequestOptions) (map[string]cadvisorapi.ContainerInfo, error) {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return nil, err
	}
	used := (si.Totalram - si.Freeram) * uint64(si.Unit)
	stats := &cadvisorapi.ContainerStats{
		Timestamp: time.Now(), Cpu: &cadvisorapi.CpuStats{}, Memory: &cadvisorapi.MemoryStats{Usage: used, WorkingSet: used},
	}
	return map[string]cadvisorapi.ContainerInfo{name: {
		Spec:  cadvisorapi.ContainerSpec{HasCpu: true, HasMemory: true, CreationTime: stats.Timestamp},
		Stats: []*cadvisorapi.ContainerStats{stats},
	}}, nil
}

// GetRequestedContainersInfo returns no containers: the runtime reports them.
func (m *machineInfo) GetRequestedContainersInfo(string, cadvisorapi.RequestOptions) (map[string]*cadvisorapi.ContainerInfo, error) {
	return map[string]*cadvisorapi.ContainerInfo{}, nil
}

// MachineInfo returns the node's simulated properties. The boot ID changes with each boot, so that the kubelet detects
// reboots.
func (m *machineInfo) MachineInfo(klog.Logger) (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{NumCores: m.cores, MemoryCapacity: m.memory, MachineID: m.name, SystemUUID: m.name,
		BootID: fmt.Sprintf("%s-%d", m.name, m.boot.UnixNano())}, nil
}

// VersionInfo returns the kernel's version.
func (m *machineInfo) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	return &cadvisorapi.VersionInfo{
		KernelVersion: unix.ByteSliceToString(u.Release[:]), ContainerOsVersion: "localkube (processes in namespaces)",
	}, nil
}

func (m *machineInfo) disk() (cadvisorapi.FsInfo, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(m.dir, &st); err != nil {
		return cadvisorapi.FsInfo{}, fmt.Errorf("statfs %s: %w", m.dir, err)
	}
	block := uint64(st.Bsize)
	return cadvisorapi.FsInfo{Timestamp: time.Now(), Mountpoint: m.dir, Capacity: st.Blocks * block, Available: st.Bavail * block,
		Usage: (st.Blocks - st.Bfree) * block, Inodes: &st.Files, InodesFree: &st.Ffree}, nil
}

// ImagesFsInfo returns the node's disk.
func (m *machineInfo) ImagesFsInfo(context.Context) (cadvisorapi.FsInfo, error) { return m.disk() }

// RootFsInfo returns the node's disk.
func (m *machineInfo) RootFsInfo() (cadvisorapi.FsInfo, error) { return m.disk() }

// ContainerFsInfo returns the node's disk.
func (m *machineInfo) ContainerFsInfo(context.Context) (cadvisorapi.FsInfo, error) { return m.disk() }

// GetDirFsInfo returns the node's disk for any folder.
func (m *machineInfo) GetDirFsInfo(string) (cadvisorapi.FsInfo, error) { return m.disk() }
