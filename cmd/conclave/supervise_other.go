//go:build !unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

func isolate(*exec.Cmd) (group bool) { return false }

// signalTo ends the child: there are no signals that it could handle.
func signalTo(child *exec.Cmd, _ bool, _ syscall.Signal) error { return child.Process.Kill() }

// No signal stops a process.
var suspending []os.Signal

const resuming = syscall.Signal(0)

func suspend(*exec.Cmd) {}
