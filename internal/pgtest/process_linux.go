package pgtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// attributes make the kernel end the server when the test binary dies, however it
// dies: SIGQUIT is PostgreSQL's immediate shutdown, which takes the backends along.
func (a account) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
}

// children lists the processes whose parent is pid. PostgreSQL puts each backend
// into a session of its own, so that a signal to a process group misses them.
func children(pid int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var found []int
	for _, path := range stats {
		if parent, _ := readStat(path); parent == pid {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			found = append(found, child)
		}
	}
	return found
}

// gone tells whether a process has ended, reaped or not.
func gone(pid int) bool {
	_, state := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
	return state == "" || state == "Z" || state == "X"
}

// stopped tells whether a process runs no further, for now or for good.
func stopped(pid int) bool {
	_, state := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
	return state == "T" || state == "t" || gone(pid)
}

// readStat reads "pid (name) state parent …"; the name may hold anything.
func readStat(path string) (parent int, state string) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, ""
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 2 {
		return 0, ""
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	return parent, string(fields[0])
}
