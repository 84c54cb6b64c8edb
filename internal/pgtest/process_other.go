//go:build !linux

package pgtest

import "syscall"

func (a account) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential, Setpgid: true}
}

// children can't be told here; backends end by themselves when the postmaster is gone.
func children(int) []int { return nil }

func gone(pid int) bool { return syscall.Kill(pid, 0) != nil }

// stopped can't be told here.
func stopped(int) bool { return true }
