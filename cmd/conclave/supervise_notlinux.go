//go:build unix && !linux

package main

import "syscall"

func stopSelf() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) }

func dieWithParent(*syscall.SysProcAttr) {}
