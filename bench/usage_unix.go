//go:build unix

package main

import (
	"os"
	"syscall"
	"time"
)

// cpuTime returns the user and system time of this process.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// blocks returns the bytes that are allocated for a file.
func blocks(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return 512 * uint64(s.Blocks)
	}
	return uint64(info.Size())
}
