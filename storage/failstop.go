package storage

import (
	"errors"
	"io/fs"
	"sync"
)

// failstop decides whether files may still be modified: they may until the
// first mutation fails. From then on every mutation parks its goroutine, so that
// Pebble never observes a failure, and so that the goroutines of a failed store
// never write to files which a new store on the same directory has opened.
//
// resume ends the parking. From then on mutations are discarded and reported as
// successful, or made in memory, so that Pebble can shut down; none of its results is
// acknowledged.
type failstop struct {
	failed  chan struct{} // closed on the first failure
	resumed chan struct{} // closed when parked goroutines may continue

	resuming sync.Once // closes resumed

	mu      sync.Mutex // protects the fields below
	err     error
	running int        // mutations under way
	idle    *sync.Cond // running is 0
}

func newFailstop() *failstop {
	f := &failstop{failed: make(chan struct{}), resumed: make(chan struct{})}
	f.idle = sync.NewCond(&f.mu)
	return f
}

// mutate runs call, which modifies a file, and returns its error. When call
// fails, or an earlier mutation has failed, it parks until resume; then it
// returns false, and the caller reports success for a discarded mutation.
func (f *failstop) mutate(op, name string, call func() error) (ok bool, err error) {
	if !f.begin() {
		<-f.resumed
		return false, nil
	}
	err = call()
	failed := err != nil && !expected(op, err)
	if failed {
		f.fail(&fs.PathError{Op: op, Path: name, Err: cause(err)})
	}
	f.end()
	if failed {
		<-f.resumed
		return false, nil
	}
	return true, err
}

// expected reports whether the caller handles the error: Pebble removes files that may
// be missing, and tries calls that not every file system supports; a file beside the
// database is opened to learn whether it exists.
func expected(op string, err error) bool {
	missing := (op == "remove" || op == "open") && errors.Is(err, fs.ErrNotExist)
	return missing || errors.Is(err, errors.ErrUnsupported)
}

// cause strips the operation and the path, which mutate adds itself.
func cause(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// fail records the first failure and ignores later ones. It does not block.
func (f *failstop) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
		close(f.failed)
	}
}

// error returns the first failure, or nil.
func (f *failstop) error() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *failstop) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return false
	}
	f.running++
	return true
}

func (f *failstop) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	if f.running == 0 {
		f.idle.Broadcast()
	}
}

// drain blocks, after a failure, until the mutations that began before it have
// returned. No file is modified after that.
func (f *failstop) drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.running > 0 {
		f.idle.Wait()
	}
}

// resume lets parked goroutines continue. Called before a failure, it keeps
// goroutines from ever being parked.
func (f *failstop) resume() { f.resuming.Do(func() { close(f.resumed) }) }
