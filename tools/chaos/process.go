//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// process is one start of a member.
type process struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	opened chan struct{} // closed when Open has returned
	done   chan struct{} // closed when the process has ended

	mu      sync.Mutex
	status  notice        // guarded by mu; the last one
	paused  chan struct{} // guarded by mu; closed when the clients have stopped
	removed chan string   // the result of an order to remove a member
	created chan string   // the result of an order to create groups
	shards  chan notice   // the result of an order to read the owners of shards
	message string        // guarded by mu; what the process said when it stopped
	ended   bool          // guarded by mu; the tool has ended it, or has told it to end
}

func launch(cmd *exec.Cmd, logFile string) (*process, error) {
	stderr, err := os.OpenFile(logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer stderr.Close() // the process has its own
	cmd.Stderr = stderr
	p := &process{cmd: cmd, opened: make(chan struct{}), done: make(chan struct{}), paused: make(chan struct{}), removed: make(chan string, 1), created: make(chan string, 1), shards: make(chan notice, 1)}
	if p.input, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(output)
	return p, nil
}

// read takes the notices of the process until it has ended.
func (p *process) read(output io.Reader) {
	defer close(p.done)
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		var n notice
		if json.Unmarshal(lines.Bytes(), &n) != nil {
			continue // the last line of a killed process
		}
		p.mu.Lock()
		switch n.What {
		case isOpen:
			close(p.opened)
		case isStatus:
			p.status = n
		case isPaused:
			close(p.paused)
			p.paused = make(chan struct{})
		case isRemoved:
			p.removed <- n.Error // one order at a time
		case isCreated:
			p.created <- n.Error // one order
		case isShards:
			select {
			case p.shards <- n:
			default: // the answer to an order that was given up is still there
			}
		case isStopped:
			p.message = n.Error
		}
		p.mu.Unlock()
	}
	_ = p.cmd.Wait() // the state is read from the command
}

func (p *process) last() notice {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

func (p *process) order(o order) {
	line, err := json.Marshal(o)
	if err != nil {
		panic(err) // it has plain fields only
	}
	// A process that has just ended reads nothing more; one that is stopped has a
	// buffer, which these few lines do not fill.
	_, _ = p.input.Write(append(line, '\n'))
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may have ended

// expectEnd marks that the end of the process is the tool's doing.
func (p *process) expectEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

func (p *process) kill() {
	p.expectEnd()
	p.signal(syscall.SIGKILL)
	<-p.done
}

// end gives an order to end, and kills the process if that takes too long. It reports
// whether the process ended by itself.
func (p *process) end(do string, limit time.Duration) bool {
	p.expectEnd()
	p.order(order{Do: do})
	select {
	case <-p.done:
		return true
	case <-time.After(limit):
		p.kill()
		return false
	}
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// unexpected returns why a process ended that the tool did not end, or "".
func (p *process) unexpected() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.running() {
		return ""
	}
	return fmt.Sprintf("%v: %s", p.cmd.ProcessState, p.message)
}

// stopped returns what the process said when it stopped by itself.
func (p *process) stopped() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.message
}

// member is one place in the group: a namespace, a directory, and the process that
// has them.
type member struct {
	index    int
	name     string
	dir      string // the data directory
	starts   int
	joined   bool     // belongs to the group
	founding bool     // its directory is that of a member that formed the group
	process  *process // nil: none was started; it may have ended
	frozen   bool     // by SIGSTOP
}

func (m *member) running() bool { return m.process != nil && m.process.running() }

// isOpen reports whether the member's process runs and Open has returned there.
func (m *member) isOpen() bool {
	if !m.running() {
		return false
	}
	select {
	case <-m.process.opened:
		return true
	default:
		return false
	}
}

func (m *member) logFile(dir string) string { return filepath.Join(dir, m.name+".log") }
