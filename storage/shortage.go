package storage

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

// A shortage is a lack of file descriptors or of memory in the process or the system, or an
// interrupted call. It says nothing about the disk, and nothing on the disk has changed.
// Pebble takes it for a failed disk, as it takes every error.

// isShortage reports whether a call that failed can be repeated once the process has what it
// lacks. ENOMEM is a shortage only of a call that has changed nothing, such as one that opens
// or reads a file: a sync may have lost what it was to write.
func isShortage(err error, unchanged bool) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.EINTR) ||
		unchanged && errors.Is(err, syscall.ENOMEM) || isSystemShortage(err)
}

// patience waits out shortages. It keeps files open in reserve, which it closes one by one
// before a call has to wait.
type patience struct {
	log     *slog.Logger
	giveUp  <-chan struct{} // closed: a shortage is an error; nil: never
	failed  <-chan struct{} // likewise: nothing more is written
	closed  chan struct{}   // likewise
	closing sync.Once

	mu      sync.Mutex // protects the fields below
	wanted  int        // files in reserve
	reserve []*os.File
	waiting int       // calls
	since   time.Time // when the oldest of an unbroken series began to wait
	lack    error     // of the latest call
}

// reserved is how many files are kept in reserve: more than Pebble opens at once for a new
// log, a table and a manifest. Each of them replaces one that is closed soon after.
const reserved = 8

func newPatience(options Options, failed <-chan struct{}) *patience {
	p := &patience{log: options.Logger, giveUp: options.GiveUp, failed: failed, closed: make(chan struct{})}
	if onDisk(options.FS) {
		p.wanted = reserved
	}
	if options.Inline { // nothing may wait
		p.close()
	}
	p.refill()
	return p
}

// close lets no call wait any more.
func (p *patience) close() { p.closing.Do(func() { close(p.closed) }) }

// release closes what is in reserve, and keeps nothing in it from then on.
func (p *patience) release() {
	p.mu.Lock()
	p.wanted = 0
	p.mu.Unlock()
	for p.spend() {
	}
}

// refill opens files until the reserve is full, or the process has no descriptors.
func (p *patience) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.reserve) < p.wanted {
		file, err := os.Open(os.DevNull)
		if err != nil {
			return
		}
		p.reserve = append(p.reserve, file)
	}
}

// spend closes a file of the reserve. It returns false when there is none.
func (p *patience) spend() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.reserve) - 1
	if last < 0 {
		return false
	}
	_ = p.reserve[last].Close()
	p.reserve = p.reserve[:last]
	return true
}

// Waits double between these.
const (
	minWait = time.Millisecond
	maxWait = time.Second
)

// again repeats a call that failed with err, until it succeeds, fails otherwise, or nothing
// waits any more. It returns the last error.
func (p *patience) again(op, name string, unchanged bool, err error, call func() error) error {
	for isShortage(err, unchanged) && p.spend() {
		err = call()
	}
	if !isShortage(err, unchanged) {
		p.refill()
		return err
	}
	if p.over() {
		return err
	}
	p.begin(op, name, err)
	defer p.end()
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		if !p.pause(wait) {
			return err
		}
		if err = call(); !isShortage(err, unchanged) {
			p.refill()
			return err
		}
	}
}

// over reports whether no call may wait.
func (p *patience) over() bool {
	select {
	case <-p.giveUp:
	case <-p.failed:
	case <-p.closed:
	default:
		return false
	}
	return true
}

// pause returns false if no call may wait.
func (p *patience) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.giveUp:
	case <-p.failed:
	case <-p.closed:
	case <-timer.C:
	}
	return !p.over()
}

func (p *patience) begin(op, name string, err error) {
	lack := &os.PathError{Op: op, Path: name, Err: cause(err)}
	p.mu.Lock()
	p.waiting++
	p.lack = lack
	first := p.waiting == 1
	if first {
		p.since = time.Now()
	}
	p.mu.Unlock()
	if first {
		p.log.Warn("disk access waits for a resource of the process", "error", lack)
	}
}

func (p *patience) end() {
	p.mu.Lock()
	p.waiting--
	last, since := p.waiting == 0, p.since
	p.mu.Unlock()
	if last {
		p.log.Info("disk access waits no longer", "after", time.Since(since))
	}
}

// shortage returns what calls wait for, and for how long; nil: none waits.
func (p *patience) shortage() (waited time.Duration, lack error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == 0 {
		return 0, nil
	}
	return time.Since(p.since), p.lack
}

// Shortage returns what file descriptors or memory an access to the disk waits for, and for
// how long, or nil. Until it has it, nothing is acknowledged that needs the access.
func (s *Store) Shortage() (waited time.Duration, lack error) { return s.patience.shortage() }
