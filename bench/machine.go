package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// machine is what the numbers depend on.
type machine struct {
	Cores      int           `json:"cores"`
	CPU        string        `json:"cpu"`
	Kernel     string        `json:"kernel"`
	Filesystem string        `json:"filesystem"`
	Fsync      time.Duration `json:"fsync_ns"`
	Go         string        `json:"go"`
	Postgres   string        `json:"postgres"`
}

// describeMachine says where this runs, and what the directory of the stores lies on.
func describeMachine(dir string) machine {
	return machine{
		Cores: cores(), CPU: cpuModel(), Kernel: runtime.GOOS + " " + release(),
		Filesystem: filesystem(dir), Fsync: fsyncTime(dir), Go: runtime.Version(),
	}
}

func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, is := strings.Cut(line, ":"); is && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func release() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return string(bytes.TrimSpace(release))
}

// filesystem is the type of the one that the directory lies on. On one in memory fsync
// costs nothing, and nothing here means anything.
func filesystem(dir string) string {
	var stat syscall.Statfs_t
	if syscall.Statfs(dir, &stat) != nil {
		return "unknown file system"
	}
	switch uint32(stat.Type) {
	case 0xef53:
		return "ext4"
	case 0x58465342:
		return "xfs"
	case 0x9123683e:
		return "btrfs"
	case 0x794c7630:
		return "overlayfs"
	case 0x01021994:
		return "tmpfs (IN MEMORY: durability costs nothing here, these numbers mean nothing)"
	}
	return "other file system"
}

// fsyncTime is the median of appending 4 KiB and syncing them.
func fsyncTime(dir string) time.Duration {
	file, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }()
	var took []float64
	page := make([]byte, 4096)
	for range 100 {
		began := time.Now()
		if _, err := file.Write(page); err != nil || file.Sync() != nil {
			return 0
		}
		took = append(took, float64(time.Since(began)))
	}
	return time.Duration(median(took))
}
