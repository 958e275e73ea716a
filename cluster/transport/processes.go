package transport

import (
	"fmt"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// processes holds the process of each member that has a live, proven PEER connection
// with this one, in either direction. A second process of the same member is refused
// meanwhile: it runs on a copy of the directory, or the first has crashed and its
// connections have not broken yet, which takes KeepAliveTimeout at most.
type processes struct {
	mu   sync.Mutex // guards live
	live map[uint64]*process
}

type process struct {
	incarnation wire.ID
	priority    int32 // see Identity.LeaderPriority
	connections int
}

func newProcesses() *processes { return &processes{live: make(map[uint64]*process)} }

// of returns the member's live process, if there is one.
func (p *processes) of(member uint64) (incarnation wire.ID, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if live := p.live[member]; live != nil {
		return live.incarnation, true
	}
	return wire.ID{}, false
}

// priority returns the LeaderPriority of the member's live process, if there is one.
func (p *processes) priority(member uint64) (priority int32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if live := p.live[member]; live != nil {
		return live.priority, true
	}
	return 0, false
}

// check refuses another process than the member's live one.
func (p *processes) check(member uint64, incarnation wire.ID) *RefusedError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.compare(member, incarnation)
}

// enter is check, and counts a connection of the process until leave is called.
func (p *processes) enter(of *Identity) (leave func(), refused *RefusedError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if refused := p.compare(of.Member, of.Incarnation); refused != nil {
		return nil, refused
	}
	live := p.live[of.Member]
	if live == nil {
		live = &process{incarnation: of.Incarnation, priority: of.LeaderPriority}
		p.live[of.Member] = live
	}
	live.connections++
	return func() { p.leave(of.Member, live) }, nil
}

func (p *processes) leave(member uint64, live *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if live.connections--; live.connections == 0 {
		delete(p.live, member)
	}
}

// compare is called with mu held.
func (p *processes) compare(member uint64, incarnation wire.ID) *RefusedError {
	live := p.live[member]
	if live == nil || live.incarnation == incarnation {
		return nil
	}
	return &RefusedError{Reason: ReasonClone, Detail: fmt.Sprintf(
		"another process of member %v is still in contact with this member: if both run, stop the one on the copy of the data directory; "+
			"if the other has crashed, it is noticed within seconds", wire.MemberID(member))}
}
