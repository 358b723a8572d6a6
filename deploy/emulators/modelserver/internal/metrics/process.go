package metrics

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// processMaxAge is the time for which the page reuses the values of /proc, because each picker may scrape ten times per second.
const processMaxAge = time.Second

// processStats are the families of this process. Values that /proc does not have are 0.
type processStats struct {
	start  float64
	readAt time.Time
	text   []byte
}

func newProcessStats(started time.Time) *processStats {
	return &processStats{start: float64(started.UnixMilli()) / 1e3}
}

func (p *processStats) append(dst []byte, now time.Time) []byte {
	if p.text == nil || now.Sub(p.readAt) >= processMaxAge {
		p.readAt, p.text = now, p.read(p.text[:0])
	}
	return append(dst, p.text...)
}

func (p *processStats) read(dst []byte) []byte {
	virtual, resident := memory()
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // 0 on failure
	cpu := time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	fds, _ := os.ReadDir("/proc/self/fd") // none on failure
	var limit syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) // 0 on failure
	for _, f := range []struct {
		name, kind, help string
		value            float64
	}{
		{"process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", virtual},
		{"process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident},
		{"process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", p.start},
		{"process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", cpu.Seconds()},
		{"process_open_fds", "gauge", "Number of open file descriptors.", float64(len(fds))},
		{"process_max_fds", "gauge", "Maximum number of open file descriptors.", float64(limit.Cur)},
	} {
		dst = append(dst, header(f.name, f.kind, f.help)...)
		dst = appendSample(dst, series(f.name), f.value)
	}
	return dst
}

// memory returns the virtual and resident size in bytes.
func memory() (virtual, resident float64) {
	statm, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(statm)
	if err != nil || len(fields) < 2 {
		return 0, 0
	}
	pages := func(b []byte) float64 {
		n, _ := strconv.ParseFloat(string(b), 64) // 0 on failure
		return n * float64(os.Getpagesize())
	}
	return pages(fields[0]), pages(fields[1])
}
