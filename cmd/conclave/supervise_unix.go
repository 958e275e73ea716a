//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/term"
)

// isolate makes the child the first of a process group, so that signals reach what it starts as well. At a
// terminal it stays in the group of this process: another group could not read from it.
func isolate(child *exec.Cmd) (group bool) {
	group = true
	if in, ok := child.Stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		group = false
	}
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: group}
	dieWithParent(child.SysProcAttr)
	return group
}

func signalTo(child *exec.Cmd, group bool, s syscall.Signal) error {
	if group {
		return syscall.Kill(-child.Process.Pid, s)
	}
	return child.Process.Signal(s)
}
