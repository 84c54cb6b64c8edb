package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// tick is the unit of CPU times under /proc: USER_HZ, 100 a second on every Linux that
// Go runs on. Where there is no /proc, all CPU times are zero.
const tick = 10 * time.Millisecond

func cores() int { return runtime.NumCPU() }

// cpuOf is the CPU time that a process has used, that of the children it has waited for
// included.
func cpuOf(pid int) time.Duration {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// "pid (name) state parent …"; the name may hold anything. The 14th to 17th fields
	// are the times of the process and of its children, in user mode and in the kernel.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return 0
	}
	return ticks(fields[11:15])
}

func cpuOfAll(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		sum += cpuOf(pid)
	}
	return sum
}

// cpuOfMachine is the CPU time that everything on this machine has used.
func cpuOfMachine() time.Duration {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	// "cpu user nice system idle iowait irq softirq …"
	fields := bytes.Fields(line)
	if len(fields) < 8 {
		return 0
	}
	return ticks(fields[1:4]) + ticks(fields[6:8])
}

func ticks(fields [][]byte) (sum time.Duration) {
	for _, field := range fields {
		n, _ := strconv.ParseInt(string(field), 10, 64)
		sum += time.Duration(n) * tick
	}
	return sum
}
