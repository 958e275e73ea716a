//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package main

import (
	"os"
	"syscall"
)

// flock locks the file exclusively until it is closed or the process ends. It
// blocks until no other process has it locked.
func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }
