//go:build linux

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usage is the largest disk and memory usage of a member.
type usage struct{ disk, memory int64 } // bytes

// usage measures the members that run.
func (g *group) usage() (u usage) {
	for _, m := range g.members {
		if m.joined && m.running() {
			u.disk = max(u.disk, diskUsage(m.dir))
			u.memory = max(u.memory, memoryUsage(m.process.cmd.Process.Pid))
		}
	}
	return u
}

// diskUsage returns what the files of a directory occupy. Some may disappear meanwhile.
func diskUsage(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

// memoryUsage returns the resident memory of a process; 0: it has ended.
func memoryUsage(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// String prints mebibytes.
func (u usage) String() string { return fmt.Sprintf("%d / %d", u.disk>>20, u.memory>>20) }
