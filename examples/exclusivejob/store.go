package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/conclave-go/conclave"
)

// report is the result of the job, with the fence under which it was made.
type report struct {
	Fence  conclave.Fence
	Period int64
	By     string
}

// store keeps the latest report in a file. It knows nothing of jobs but the
// fence: it refuses a report whose fence is smaller than that of the latest one.
type store struct{ path string }

// write replaces the report, or returns an error that wraps ErrStaleFence. It
// compares the fence and writes as one step: a database would use a transaction,
// this store uses a file lock, which the system releases if the process dies.
func (s store) write(r report) error {
	lock, err := os.OpenFile(s.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // unlocks it
	if err := flock(lock); err != nil {
		return err
	}
	last, err := s.read()
	if err != nil {
		return err
	}
	if r.Fence < last.Fence {
		return fmt.Errorf("%w: got %v, but %s has written with %v", conclave.ErrStaleFence, r.Fence, last.By, last.Fence)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// A process that dies before the rename leaves the last report as it was.
	if err := os.WriteFile(s.path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.path+".new", s.path)
}

// read returns the latest report, or a zero report if there is none.
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
