package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/conclave-go/conclave"
)

// store has a file for each shard, to which all its owners append. A line is
//
//	FENCE OWNER VALUE
//
// and counts if no line before it has a larger fence. So the order in the file,
// which is the same for all, decides which writer was late: no lock is needed.
type store struct{ folder string }

// counter is the file of a shard, for one owner.
type counter struct {
	file    *os.File
	read    int64 // bytes of it
	fence   conclave.Fence
	owner   string
	largest conclave.Fence // of the lines so far
	value   int            // that counts
}

// open begins an ownership. The line that it writes keeps earlier owners from
// writing, so the value that counts before it is the last one.
func (s store) open(shard int, fence conclave.Fence, owner string) (*counter, error) {
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(s.folder, fmt.Sprintf("shard-%02d", shard))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	c := &counter{file: f, fence: fence, owner: owner}
	if err := c.write("begin"); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *counter) close() { c.file.Close() } // it is unbuffered, so each write has reported its error

// increase adds one to the value, or returns an error that wraps ErrStaleFence.
func (c *counter) increase() error { return c.write(fmt.Sprint(c.value + 1)) }

// write appends a line, and reads up to that whether it counts.
func (c *counter) write(value string) error {
	line := fmt.Sprintf("%d %q %s\n", uint64(c.fence), c.owner, value)
	// One write at the end: the lines of several processes are not mixed.
	if _, err := c.file.WriteString(line); err != nil {
		return err
	}
	text, err := io.ReadAll(io.NewSectionReader(c.file, c.read, math.MaxInt64-c.read))
	if err != nil {
		return err
	}
	for read := range strings.Lines(string(text)) {
		c.read += int64(len(read))
		if err := c.apply(read); err != nil {
			return err
		}
		if read == line {
			break // what follows is of later owners, or late
		}
	}
	if c.largest > c.fence {
		return fmt.Errorf("%w: shard has an owner with fence %v", conclave.ErrStaleFence, c.largest)
	}
	return nil
}

// apply takes a line into account.
func (c *counter) apply(line string) error {
	var (
		fence        uint64
		owner, value string
	)
	if _, err := fmt.Sscanf(line, "%d %q %s\n", &fence, &owner, &value); err != nil {
		return fmt.Errorf("%s: malformed line %q: %w", c.file.Name(), strings.TrimSpace(line), err)
	}
	if conclave.Fence(fence) < c.largest {
		return nil // written too late
	}
	c.largest = conclave.Fence(fence)
	if value == "begin" {
		return nil
	}
	_, err := fmt.Sscan(value, &c.value)
	return err
}
