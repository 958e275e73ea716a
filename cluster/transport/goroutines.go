package transport

import (
	"context"
	"fmt"
	"runtime/pprof"
	"sync"
)

// group starts every goroutine of a transport, names it in pprof's labels and
// counts it.
type group struct {
	member string
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	stopped bool
	running map[string]int
}

func newGroup(member uint64) *group {
	return &group{member: fmt.Sprintf("%x", member), running: make(map[string]int)}
}

// start runs f on a goroutine of its own; false means that the group was
// stopped and f will not run.
func (g *group) start(what string, f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return false
	}
	g.running[what]++
	g.wg.Add(1)
	go g.run(what, f)
	return true
}

func (g *group) run(what string, f func()) {
	defer g.wg.Done()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running[what]--
	}()
	labels := pprof.Labels("conclave", "transport", "member", g.member, "goroutine", what)
	pprof.Do(context.Background(), labels, func(context.Context) { f() })
}

// wait lets nothing start any more and returns when all have ended.
func (g *group) wait() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.wg.Wait()
}

// count is the number of goroutines that run, for tests.
func (g *group) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, k := range g.running {
		n += k
	}
	return n
}
