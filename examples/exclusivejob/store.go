//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/conclave-go/conclave"
)

// report is what the job makes, with the fence under which it was made.
type report struct {
	Fence  conclave.Fence
	Period int64
	By     string
}

// store keeps the last report in a file. It knows nothing of locks but the
// fence: a report with a smaller one than it has seen comes too late.
type store struct{ path string }

// write replaces the report, unless it comes too late. The comparison and the
// write are one step: as a database has its transactions, this has a lock of the
// file system, which the system takes back from a process that dies.
func (s store) write(r report) error {
	gate, err := os.OpenFile(s.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer gate.Close() // gives the lock back
	if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	last, err := s.read()
	if err != nil {
		return err
	}
	if r.Fence < last.Fence {
		return fmt.Errorf("%w: %v, and %s has written with %v", conclave.ErrStaleFence, r.Fence, last.By, last.Fence)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// A process that dies in the middle leaves the last report as it was.
	if err := os.WriteFile(s.path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.path+".new", s.path)
}

// read returns the last report, a zero one if there is none.
func (s store) read() (report, error) {
	var r report
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}
