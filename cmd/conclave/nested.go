package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/conclave-go/conclave"
)

// A command under conclave lock may run conclave lock in turn, with a session of another process. The group does not know
// that the first session waits for the command, and with it for the second one. So the name of the second session has the ID of
// the first, and cycles and explain follow it.

// sessionVariable has the ID of the session under which a command runs.
const sessionVariable = "CONCLAVE_SESSION"

const insideMark = ", inside session "

// sessionName is the name of a session of this process, for people, and for outerOf.
func sessionName() string {
	host, _ := os.Hostname() // it may be missing
	text := fmt.Sprintf("%s, process %d", cmp.Or(host, "unknown host"), os.Getpid())
	if outer, err := conclave.ParseSessionID(os.Getenv(sessionVariable)); err == nil {
		text += insideMark + outer.String()
	}
	return text
}

// outerOf returns the session inside which the session of that name runs.
func outerOf(sessionName string) (outer conclave.SessionID, found bool) {
	i := strings.LastIndex(sessionName, insideMark)
	if i < 0 {
		return outer, false
	}
	outer, err := conclave.ParseSessionID(sessionName[i+len(insideMark):])
	return outer, err == nil
}

// nestedWait is a wait for a lock, with the fence of its holder.
type nestedWait struct {
	conclave.Wait
	fence conclave.Fence
}

// nestedCycle is a cycle of waits in which the command of a holder waits in place of the holder itself.
type nestedCycle []nestedWait

func (c nestedCycle) waits() (waits conclave.WaitCycle) {
	for _, w := range c {
		waits = append(waits, w.Wait)
	}
	return waits
}

// String prints the cycle for people, in one line.
func (c nestedCycle) String() string {
	var s strings.Builder
	for i, w := range c {
		if i > 0 {
			s.WriteString("; ")
		}
		s.WriteString(conclave.WaitCycle{w.Wait}.String())
		if next := c[(i+1)%len(c)].Waiter.Session; next != w.Holder.Session {
			fmt.Fprintf(&s, "; inside that session a command waits under session %s", next)
		}
	}
	return s.String()
}

// nesting is the sessions that wait for each other, at about the same time.
type nesting struct {
	waits map[conclave.SessionID][]nestedWait         // for locks, by the waiter
	inner map[conclave.SessionID][]conclave.SessionID // by the outer one
}

// nestedSearch is what a search for cycles has found until it ended.
type nestedSearch struct {
	cycles  []nestedCycle
	skipped int   // locks that requests wait for and whose queues were not read
	err     error // why it ended early; nil: it did not
}

// note says for people what the search does not cover; "": it covers all.
func (s nestedSearch) note() string {
	switch {
	case s.err != nil:
		return fmt.Sprintf("not all commands inside sessions were searched for cycles: %v", s.err)
	case s.skipped > 0:
		return fmt.Sprintf("commands inside sessions were searched for cycles in the queues of %d locks, not in those of %s that have no more waiters", explainedAtOnce, count(s.skipped, "other"))
	}
	return ""
}

// searchNested searches for cycles in which sessions wait for commands inside them, in the queue of one lock, if it is not "", and in those of
// the locks with the most waiters. Each cycle existed as a whole at one moment: all of its waits are there again after the last of them was read.
func searchNested(ctx context.Context, c *conclave.Client, lock string) (s nestedSearch) {
	contended, err := contendedLocks(ctx, c)
	if err != nil {
		return nestedSearch{err: err}
	}
	var read []string
	if lock != "" {
		read = append(read, lock)
	}
	for _, l := range contended {
		if l.Name == lock {
			continue
		}
		if len(read) == explainedAtOnce {
			s.skipped++
			continue
		}
		read = append(read, l.Name)
	}
	s.cycles, s.err = nestedCycles(ctx, c, read)
	return s
}

// nestedCycles returns the cycles in the queues of some locks. With an error they are those that were found before.
func nestedCycles(ctx context.Context, c *conclave.Client, locks []string) (found []nestedCycle, err error) {
	n, begins, err := readNesting(ctx, c, locks)
	if err != nil || len(begins) == 0 {
		return nil, err
	}
	for s, err := range c.Sessions(ctx) {
		if err != nil {
			return nil, err
		}
		if outer, ok := outerOf(s.Name); ok {
			n.inner[outer] = append(n.inner[outer], s.ID)
		}
	}
	known := make(map[conclave.SessionID]bool)
	for _, begin := range begins {
		cycle := n.cycle(begin)
		if known[begin] || cycle == nil {
			continue
		}
		for _, w := range cycle {
			known[w.Waiter.Session] = true
		}
		if persists, err := cycle.persists(ctx, c); err != nil {
			return found, err
		} else if persists {
			found = append(found, cycle)
		}
	}
	return found, nil
}

// readNesting reads the queues of locks. begins are the waiters that run inside another session.
func readNesting(ctx context.Context, c *conclave.Client, locks []string) (n nesting, begins []conclave.SessionID, err error) {
	n = nesting{make(map[conclave.SessionID][]nestedWait), make(map[conclave.SessionID][]conclave.SessionID)}
	for _, lock := range locks {
		e, err := c.Explain(ctx, lock)
		if err != nil {
			return n, nil, err
		}
		for _, w := range e.Queue {
			if !e.Held {
				break
			}
			n.waits[w.Session] = append(n.waits[w.Session], nestedWait{conclave.Wait{Lock: lock, Waiter: w, Holder: e.Holder}, e.Fence})
			if _, nested := outerOf(w.SessionName); nested {
				begins = append(begins, w.Session)
			}
		}
	}
	slices.SortFunc(begins, func(a, b conclave.SessionID) int { return bytes.Compare(a[:], b[:]) })
	return n, slices.Compact(begins), nil
}

// cycle returns a shortest way from a session back to it that leads into at least one command; nil: there is none.
func (n nesting) cycle(begin conclave.SessionID) nestedCycle {
	type path struct {
		waits  nestedCycle
		nested bool
		at     conclave.SessionID
	}
	type state struct {
		nested bool
		at     conclave.SessionID
	}
	seen := make(map[state]bool)
	for queue := []path{{at: begin}}; len(queue) > 0; queue = queue[1:] {
		p := queue[0]
		if p.at == begin && p.nested {
			return p.waits
		}
		if key := (state{p.nested, p.at}); seen[key] {
			continue
		} else {
			seen[key] = true
		}
		for _, w := range n.waits[p.at] {
			queue = append(queue, path{append(slices.Clip(p.waits), w), p.nested, w.Holder.Session})
		}
		for _, inner := range n.inner[p.at] {
			queue = append(queue, path{p.waits, true, inner})
		}
	}
	return nil
}

// persists reads the waits of a cycle again.
func (c nestedCycle) persists(ctx context.Context, client *conclave.Client) (bool, error) {
	for _, w := range c {
		e, err := client.Explain(ctx, w.Lock)
		if err != nil {
			return false, err
		}
		waits := func(o conclave.LockOwner) bool { return o.Session == w.Waiter.Session }
		if !e.Held || e.Fence != w.fence || !slices.ContainsFunc(e.Queue, waits) {
			return false, nil
		}
	}
	return true, nil
}

// mayBeNested reports whether the holder of a lock may be in a cycle that the group does not know, because of commands inside sessions.
func mayBeNested(e conclave.Explanation) bool {
	isNested := func(o conclave.LockOwner) bool {
		_, nested := outerOf(o.SessionName)
		return nested
	}
	return len(e.Cycle) == 0 && e.Held && (isNested(e.Holder) || slices.ContainsFunc(e.Queue, isNested))
}

// of returns a cycle that the holder of a lock is in; nil: none.
func (s nestedSearch) of(lock string) nestedCycle {
	for _, cycle := range s.cycles {
		if slices.ContainsFunc(cycle, func(w nestedWait) bool { return w.Lock == lock }) {
			return cycle
		}
	}
	return nil
}
