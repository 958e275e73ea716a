//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/conclave-go/conclave"
)

// write is a request to the resource, and the line that it records about it.
type write struct {
	Sequence int    `json:"i,omitempty"`
	Time     int64  `json:"t,omitempty"`     // CLOCK_MONOTONIC in ns, when it was decided
	Group    string `json:"group,omitempty"` // its name, also of an instance
	Name     string `json:"name"`
	Hold     string `json:"hold"`
	Fence    uint64 `json:"fence"`
	Accepted bool   `json:"accepted"`
}

// resource is what the locks protect: a process outside of the group that no
// partition separates from the members, since they reach it by a socket of the file
// system. It refuses a fence smaller than one that it has accepted for the name.
type resource struct {
	listener net.Listener

	mu       sync.Mutex
	guard    conclave.Guard // checked under mu, so that a write follows its check
	sequence int            // guarded by mu
	record   *os.File       // guarded by mu; nil between phases
	err      error          // guarded by mu; the first failure to record
}

func newResource(path string) (*resource, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	r := &resource{listener: l}
	go r.accept()
	return r, nil
}

func (r *resource) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		go r.serve(conn)
	}
}

func (r *resource) serve(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var w write
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			return
		}
		answer := "refused\n"
		if r.decide(w) {
			answer = "accepted\n"
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			return // killed
		}
	}
}

// decide accepts or refuses a write, and records that.
func (r *resource) decide(w write) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.Accepted = r.guard.Check(w.Group+"\x00"+w.Name, conclave.Fence(w.Fence)) == nil
	r.sequence++
	w.Sequence, w.Time = r.sequence, now()
	line, err := json.Marshal(w)
	if err == nil && r.record != nil {
		_, err = r.record.Write(append(line, '\n'))
	}
	r.err = errors.Join(r.err, err)
	return w.Accepted
}

// begin records to a new file from now on.
func (r *resource) begin(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record = file
	return nil
}

// end closes the record.
func (r *resource) end() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.err
	if r.record != nil {
		err = errors.Join(err, r.record.Close())
	}
	r.record = nil
	return err
}

func (r *resource) close() { _ = r.listener.Close() } // the process ends

// readWrites reads the record of a phase.
func readWrites(path string) ([]write, error) {
	text, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	var all []write
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		var w write
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			return nil, fmt.Errorf("%s: malformed line %q: %w", path, lines.Text(), err)
		}
		all = append(all, w)
	}
	return all, lines.Err()
}

// resourceClient writes to the resource for one client.
type resourceClient struct {
	path  string
	conn  net.Conn
	lines *bufio.Reader
}

func newResourceClient(path string) *resourceClient { return &resourceClient{path: path} }

// write asks the resource. Only the resource's record tells what became of it.
func (c *resourceClient) write(group, name, hold string, f conclave.Fence) {
	if c.conn == nil {
		conn, err := net.Dial("unix", c.path)
		if err != nil {
			return // the tool is ending
		}
		c.conn, c.lines = conn, bufio.NewReader(conn)
	}
	line, err := json.Marshal(write{Group: group, Name: name, Hold: hold, Fence: uint64(f)})
	if err == nil {
		_, err = c.conn.Write(append(line, '\n'))
	}
	if err == nil {
		_, err = c.lines.ReadString('\n')
	}
	if err != nil {
		c.close()
	}
}

func (c *resourceClient) close() {
	if c.conn != nil {
		_ = c.conn.Close() // nothing is buffered
		c.conn = nil
	}
}
