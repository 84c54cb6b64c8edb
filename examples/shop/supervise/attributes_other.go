//go:build !linux

package supervise

import "syscall"

// attributes are the system's: beyond Linux the children outlive a parent that crashes.
func attributes() *syscall.SysProcAttr { return nil }
