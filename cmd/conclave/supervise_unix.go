//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
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

// suspending is what the key for that sends to the processes of a terminal's group, to which the child does not belong.
var suspending = []os.Signal{syscall.SIGTSTP}

const resuming = syscall.SIGCONT

// suspend stops the child and then this process, and returns when this process is resumed. The first process of a session has
// no shell that could resume it.
func suspend(child *exec.Cmd) {
	if sid, err := unix.Getsid(0); err != nil || sid == os.Getpid() {
		return
	}
	_ = signalTo(child, true, syscall.SIGSTOP) // it could ignore SIGTSTP
	stopSelf()
}

func signalTo(child *exec.Cmd, group bool, s syscall.Signal) error {
	if group {
		return syscall.Kill(-child.Process.Pid, s)
	}
	return child.Process.Signal(s)
}
