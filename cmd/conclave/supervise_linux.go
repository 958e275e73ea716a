package main

import "syscall"

// dieWithParent has the kernel kill the child if this process dies: the child would go on without the lock.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// stopSelf stops this process. A signal to the process could be delivered to another thread, and this one go on meanwhile.
func stopSelf() { _ = syscall.Tgkill(syscall.Getpid(), syscall.Gettid(), syscall.SIGSTOP) }
