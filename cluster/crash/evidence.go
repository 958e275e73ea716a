// Package crash decides which processes have crashed by what connections show: the host of a process closes its
// connections when it ends, and refuses new ones. Evidence is what one member has seen, and Votes is what a leader
// makes of that of the voters.
//
// It is a seam, not an API: only package cluster and its transport use it.
package crash

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Process is one start of a member.
type Process struct{ Member, Boot uint64 }

// Side is the direction of a connection.
type Side int

const (
	Inbound  Side = iota // from the process
	Outbound             // to it
	sides
)

// Lifetime is for how long evidence lasts after the dial that has confirmed it. A member dials more often.
const Lifetime = 4 * time.Second

// Evidence is what this member has seen of the processes of other members. There is evidence that one has crashed while
// all connections with it have ended, the last one in each direction was ended by the host of the process, and the last
// dial of its address was refused. A process that is paused, or partitioned, closes nothing and refuses nothing. It may be
// used on any goroutine.
type Evidence struct {
	changed func()

	mu      sync.Mutex
	members map[uint64]*connections // guarded by mu
}

// connections is what is known of a member's last process that had a connection.
type connections struct {
	boot        uint64
	incarnation wire.ID
	open        [sides]int
	ended       [sides]ending // the last one that has ended
	refused     time.Time     // the last dial, if that was refused since all have ended; else zero
}

// ending is how a connection has ended.
type ending int

const (
	never     ending = iota // there was none
	byHost                  // of the process
	otherwise               // here, by a timeout, or for what was received
)

// NewEvidence returns a table without evidence. changed is called when there is evidence that a process has crashed, and
// when there is none any more. It must not block.
func NewEvidence(changed func()) *Evidence {
	return &Evidence{changed: changed, members: make(map[uint64]*connections)}
}

// Opened notes a connection, whose other end has proved that it is the process. closed must be called once when it has
// ended, with whether the host of the process has ended it.
func (e *Evidence) Opened(p Process, incarnation wire.ID, side Side) (closed func(endedByHost bool)) {
	var of *connections
	e.edit(p.Member, func(c *connections) *connections {
		if c == nil || c.incarnation != incarnation {
			c = &connections{boot: p.Boot, incarnation: incarnation}
		}
		c.open[side]++
		c.refused = time.Time{}
		of = c
		return c
	})
	return func(endedByHost bool) { e.closed(p.Member, of, side, endedByHost) }
}

func (e *Evidence) closed(member uint64, of *connections, side Side, endedByHost bool) {
	e.edit(member, func(c *connections) *connections {
		if c != of {
			return c // it was an earlier process's, or the member was forgotten meanwhile
		}
		c.open[side]--
		if c.ended[side] = otherwise; endedByHost {
			c.ended[side] = byHost
		}
		return c
	})
}

// Dialed notes that a dial of the member's address was refused, or has had another end.
func (e *Evidence) Dialed(member uint64, refused bool) {
	e.edit(member, func(c *connections) *connections {
		if c == nil {
			return nil
		}
		if c.refused = (time.Time{}); refused && c.closedByHost() {
			c.refused = time.Now()
		}
		return c
	})
}

// Forget forgets a member that is none any more.
func (e *Evidence) Forget(member uint64) {
	e.edit(member, func(*connections) *connections { return nil })
}

// edit replaces what is known of a member; nil: nothing.
func (e *Evidence) edit(member uint64, change func(*connections) *connections) {
	e.mu.Lock()
	now := time.Now()
	before := e.members[member].crashed(now)
	c := change(e.members[member])
	if c != nil {
		e.members[member] = c
	} else {
		delete(e.members, member)
	}
	changed := c.crashed(now) != before
	e.mu.Unlock()
	if changed {
		e.changed()
	}
}

// closedByHost reports whether all connections have ended, by the host of the process.
func (c *connections) closedByHost() bool {
	for side := range sides {
		if c.open[side] > 0 || c.ended[side] == otherwise {
			return false
		}
	}
	return slices.Contains(c.ended[:], byHost)
}

// crashed reports whether there is evidence that the process has crashed.
func (c *connections) crashed(now time.Time) bool {
	return c != nil && !c.refused.IsZero() && now.Sub(c.refused) < Lifetime
}

// Crashed returns the processes of which there is evidence that they have crashed, by member.
func (e *Evidence) Crashed() (list []Process) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for id, c := range e.members { // order: sorted below
		if c.crashed(now) {
			list = append(list, Process{id, c.boot})
		}
	}
	slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.Member, b.Member) })
	return list
}

// Connected reports whether there is a connection with the process.
func (e *Evidence) Connected(p Process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.members[p.Member]
	return c != nil && c.boot == p.Boot && c.open[Inbound]+c.open[Outbound] > 0
}
