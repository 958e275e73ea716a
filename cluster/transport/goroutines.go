package transport

import (
	"context"
	"runtime/pprof"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// goroutines starts every goroutine of a transport, labels it for pprof and
// counts it.
type goroutines struct {
	member string
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	stopped bool
	running int
}

func newGoroutines(member uint64) *goroutines {
	return &goroutines{member: wire.MemberID(member).String()}
}

// start runs f on its own goroutine. After wait was called it returns false and
// f does not run.
func (g *goroutines) start(name string, f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.running++
	g.wg.Add(1)
	go g.run(name, f)
	return true
}

// keepAlive starts a writeLoop that sends nothing but keep-alives. The reading
// side reports its error.
func (g *goroutines) keepAlive(s *stream) {
	g.start("keep-alive", func() { _ = s.writeLoop(nil, nil, 0) })
}

func (g *goroutines) run(name string, f func()) {
	defer g.wg.Done()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running--
	}()
	labels := pprof.Labels("conclave", "transport", "member", g.member, "goroutine", name)
	pprof.Do(context.Background(), labels, func(context.Context) { f() })
}

// wait prevents further starts and blocks until every goroutine has ended.
func (g *goroutines) wait() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.wg.Wait()
}

// count returns the number of running goroutines, for tests.
func (g *goroutines) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running
}
