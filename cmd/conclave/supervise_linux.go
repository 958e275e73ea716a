package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent has the kernel kill the child if this process dies: the child would go on without the lock.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// stopSelf stops this process. A signal to the process could be delivered to another thread, and this one go on meanwhile.
func stopSelf() { _ = syscall.Tgkill(syscall.Getpid(), syscall.Gettid(), syscall.SIGSTOP) }

// descendants returns the processes whose parents, up to root, are alive.
func descendants(root int) (found []descendant) {
	children := make(map[int][]descendant)
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if parent, began, ok := origin(pid); ok {
			children[parent] = append(children[parent], descendant{pid, began})
		}
	}
	found = children[root]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found
}

// origin is the parent of a process, and when it began.
func origin(pid int) (parent int, began string, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	end := strings.LastIndexByte(string(stat), ')') // of the name, which may contain anything
	if err != nil || end < 0 {
		return 0, "", false
	}
	fields := strings.Fields(string(stat[end+1:])) // the third and the following ones of proc(5)
	if len(fields) < 20 {
		return 0, "", false
	}
	parent, err = strconv.Atoi(fields[1])
	return parent, fields[19], err == nil
}

// kill kills the process and what it has started since it was found.
func (d descendant) kill() {
	if _, began, ok := origin(d.pid); !ok || began != d.began {
		return
	}
	later := descendants(d.pid)
	_ = syscall.Kill(d.pid, syscall.SIGKILL)
	for _, l := range later {
		l.kill()
	}
}
