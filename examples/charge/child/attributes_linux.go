package child

import "syscall"

// attributes make the kernel end the daemon when this process dies, however it dies.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
