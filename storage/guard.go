package storage

import (
	"errors"
	"io/fs"
	"sync"
)

// guard decides whether files may still be touched. Until the first failed
// mutation they may; from then on every mutation parks its goroutine, so that
// Pebble never learns of a failure that it would answer with a crash, and so
// that the remains of a failed store never write into files which a fresh one
// on the same directory has opened.
//
// A parked goroutine wakes when the guard is released. Then mutations are
// neither carried out nor refused: they are dropped and reported as done, and
// Pebble can come to its end. Nothing it says then is passed on to anybody.
type guard struct {
	failed   chan struct{} // closed with the first failure
	released chan struct{} // closed when parked goroutines may end

	mu      sync.Mutex // guards what follows
	err     error
	running int        // mutations under way
	idle    *sync.Cond // running has become 0
	free    bool       // released is closed
}

func newGuard() *guard {
	g := &guard{failed: make(chan struct{}), released: make(chan struct{})}
	g.idle = sync.NewCond(&g.mu)
	return g
}

// mutate carries out one mutation of a file. It returns ok and what the call
// returned, or, after a failure and once the guard is released, false: the
// caller then reports success without having done anything.
func (g *guard) mutate(op, name string, call func() error) (ok bool, err error) {
	if !g.enter() {
		<-g.released
		return false, nil
	}
	err = call()
	if err != nil && !expected(err) {
		g.fail(&fs.PathError{Op: op, Path: name, Err: cause(err)})
	}
	g.leave()
	if err != nil && !expected(err) {
		<-g.released
		return false, nil
	}
	return true, err
}

// expected reports the errors that Pebble asks for: it removes what may be gone
// already, and tries calls that not every file system has.
func expected(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported)
}

// cause strips the operation and the path that the guard adds itself.
func cause(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// fail records the first failure; later ones are ignored. It does not block.
func (g *guard) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
		close(g.failed)
	}
}

// error returns the failure, or nil.
func (g *guard) error() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

func (g *guard) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return false
	}
	g.running++
	return true
}

func (g *guard) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.running == 0 {
		g.idle.Broadcast()
	}
}

// settle waits, after a failure, until the mutations that were under way when
// it came have returned. From then on no file is touched any more.
func (g *guard) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.running > 0 {
		g.idle.Wait()
	}
}

// release wakes the parked goroutines. It may be called before a failure too:
// then nobody is ever parked.
func (g *guard) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.free {
		g.free = true
		close(g.released)
	}
}
