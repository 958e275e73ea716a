//go:build !linux

package main

import "os/exec"

// dieWithParent does nothing: other systems offer no such thing. A child outlives this process
// only if that ends by a signal other than an interrupt.
func dieWithParent(*exec.Cmd) {}
