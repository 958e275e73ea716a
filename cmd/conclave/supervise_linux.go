package main

import "syscall"

// dieWithParent has the kernel kill the child if this process dies: the child would go on without the lock.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
