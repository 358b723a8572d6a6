package cri

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats reports CPU and memory of one container.
func (r *Runtime) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	c, _, err := r.container(id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.stats(), nil
}

// ListContainerStats reports CPU and memory of containers.
func (r *Runtime) ListContainerStats(_ context.Context, f *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.ContainerStats
	for _, c := range r.containers {
		if (f.GetId() == "" || f.GetId() == c.id) && (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.sandbox) &&
			matches(c.config.Labels, f.GetLabelSelector()) {
			out = append(out, c.stats())
		}
	}
	return out, nil
}

// stats returns the values of the container's first process, which is the only one in nearly every image.
func (c *container) stats() *runtimeapi.ContainerStats {
	var u usage
	if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/stat")
		if err == nil { // else it has just ended
			u = parseStat(raw)
		}
	}
	now := time.Now().UnixNano()
	rss := &runtimeapi.UInt64Value{Value: u.rssBytes}
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations,
		},
		Cpu:    &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: u.cpuNanoseconds}},
		Memory: &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: rss, UsageBytes: rss, RssBytes: rss},
	}
}

type usage struct{ cpuNanoseconds, rssBytes uint64 }

// Fields of /proc/PID/stat after the command's closing parenthesis, counted from 0 (proc_pid_stat(5)).
const (
	statUserTime   = 11
	statSystemTime = 12
	statRSS        = 21
	nsPerTick      = 10_000_000 // USER_HZ is 100 everywhere Go runs on Linux
)

func parseStat(raw []byte) usage {
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) <= statRSS {
		return usage{}
	}
	number := func(i int) uint64 {
		n, _ := strconv.ParseUint(fields[i], 10, 64)
		return n
	}
	return usage{
		cpuNanoseconds: (number(statUserTime) + number(statSystemTime)) * nsPerTick, rssBytes: number(statRSS) * uint64(os.Getpagesize()),
	}
}
