package main

import (
	"context"
	"fmt"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// machineInfo answers what the kubelet still asks of cAdvisor: how big the machine is, how full its disk.
type machineInfo struct {
	name   string
	cores  int
	memory uint64 // bytes
	dir    string // the node's disk
	boot   time.Time
}

// Start has nothing to start.
func (m *machineInfo) Start() error { return nil }

// ContainerInfoV2 gives one sample for whatever cgroup is asked for, which is the root's: there are none.
func (m *machineInfo) ContainerInfoV2(name string, _ cadvisorapi.RequestOptions) (map[string]cadvisorapi.ContainerInfo, error) {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return nil, err
	}
	used := (si.Totalram - si.Freeram) * uint64(si.Unit)
	stats := &cadvisorapi.ContainerStats{Timestamp: time.Now(), Cpu: &cadvisorapi.CpuStats{}, Memory: &cadvisorapi.MemoryStats{Usage: used, WorkingSet: used}}
	return map[string]cadvisorapi.ContainerInfo{name: {
		Spec:  cadvisorapi.ContainerSpec{HasCpu: true, HasMemory: true, CreationTime: stats.Timestamp},
		Stats: []*cadvisorapi.ContainerStats{stats},
	}}, nil
}

// GetRequestedContainersInfo knows of no containers: the runtime reports them.
func (m *machineInfo) GetRequestedContainersInfo(string, cadvisorapi.RequestOptions) (map[string]*cadvisorapi.ContainerInfo, error) {
	return map[string]*cadvisorapi.ContainerInfo{}, nil
}

// MachineInfo is what the node pretends to be. The boot id changes with each boot, by which the kubelet sees a reboot.
func (m *machineInfo) MachineInfo(klog.Logger) (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{NumCores: m.cores, MemoryCapacity: m.memory, MachineID: m.name, SystemUUID: m.name,
		BootID: fmt.Sprintf("%s-%d", m.name, m.boot.UnixNano())}, nil
}

// VersionInfo names the kernel.
func (m *machineInfo) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	return &cadvisorapi.VersionInfo{KernelVersion: unix.ByteSliceToString(u.Release[:]), ContainerOsVersion: "localkube (processes in namespaces)"}, nil
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

// ImagesFsInfo is the node's disk.
func (m *machineInfo) ImagesFsInfo(context.Context) (cadvisorapi.FsInfo, error) { return m.disk() }

// RootFsInfo is the node's disk.
func (m *machineInfo) RootFsInfo() (cadvisorapi.FsInfo, error) { return m.disk() }

// ContainerFsInfo is the node's disk.
func (m *machineInfo) ContainerFsInfo(context.Context) (cadvisorapi.FsInfo, error) { return m.disk() }

// GetDirFsInfo is the node's disk, whatever the folder.
func (m *machineInfo) GetDirFsInfo(string) (cadvisorapi.FsInfo, error) { return m.disk() }
