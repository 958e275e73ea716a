package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill a child if this process ends without doing so, as after
// SIGKILL.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
