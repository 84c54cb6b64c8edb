//go:build !linux

package child

import "syscall"

// attributes are the system's: beyond Linux a daemon outlives a parent that crashes.
func attributes() *syscall.SysProcAttr { return nil }
