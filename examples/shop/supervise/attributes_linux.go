package supervise

import "syscall"

// attributes keep a terminal's Ctrl-C from the children, which are stopped in order, and
// make the kernel end them when this process dies, however it dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
