package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/conclave-go/conclave"
)

// A command under conclave lock or elect may run one of them in turn, with a session of another process. The group does not know
// that the first session waits for the command, and with it for the second one. So the name of the second session has the ID of
// the first, and cycles and explain follow it. A session of elect has the name of its election too: it waits for that unless it leads,
// and the group does not list candidates.

// sessionVariable has the ID of the session under which a command runs.
const sessionVariable = "CONCLAVE_SESSION"

const electionMark, insideMark = ", for election ", ", inside session "

// longestName is that of a session, in bytes.
const longestName = 512

// sessionName is the name of a session of this process, for people, and for outerOf and electionOf. election is what it is for, if it is for
// one alone.
func sessionName(election string) string {
	host, _ := os.Hostname() // it may be missing
	text, inside := fmt.Sprintf("%s, process %d", cmp.Or(host, "unknown host"), os.Getpid()), ""
	if outer, err := conclave.ParseSessionID(os.Getenv(sessionVariable)); err == nil {
		inside = insideMark + outer.String()
	}
	if named := text + electionMark + strconv.Quote(election); election != "" && len(named)+len(inside) <= longestName {
		text = named
	}
	return text + inside
}

// electionOf returns the election for which the session of that name is.
func electionOf(sessionName string) (election string, found bool) {
	if _, nested := outerOf(sessionName); nested {
		sessionName = sessionName[:strings.LastIndex(sessionName, insideMark)]
	}
	_, quoted, found := strings.Cut(sessionName, electionMark)
	if !found {
		return "", false
	}
	election, err := strconv.Unquote(quoted)
	return election, err == nil
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

// nestedWait is a wait for a lock or an election, with the fence of its holder.
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

// heldWait is a wait for each of the holders, which share the lock if they are several, and for sets that have it reserved.
type heldWait struct {
	nestedWait // without a holder
	holders    []conclave.LockOwner
}

// nesting is the sessions that wait for each other, at about the same time.
type nesting struct {
	waits  map[conclave.SessionID][]heldWait           // by the waiter
	inner  map[conclave.SessionID][]conclave.SessionID // by the outer one
	begins []conclave.SessionID                        // that wait inside another one
}

func newNesting() *nesting {
	return &nesting{waits: make(map[conclave.SessionID][]heldWait), inner: make(map[conclave.SessionID][]conclave.SessionID)}
}

func (n *nesting) add(w nestedWait, holders ...conclave.LockOwner) {
	n.waits[w.Waiter.Session] = append(n.waits[w.Waiter.Session], heldWait{w, holders})
	if _, nested := outerOf(w.Waiter.SessionName); nested {
		n.begins = append(n.begins, w.Waiter.Session)
	}
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
func searchNested(ctx context.Context, c groupClient, lock string) (s nestedSearch) {
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
func nestedCycles(ctx context.Context, c groupClient, locks []string) (found []nestedCycle, err error) {
	n := newNesting()
	if err := n.readLocks(ctx, c, locks); err != nil {
		return nil, err
	}
	if err := n.readSessions(ctx, c); err != nil {
		return nil, err
	}
	slices.SortFunc(n.begins, func(a, b conclave.SessionID) int { return bytes.Compare(a[:], b[:]) })
	known := make(map[conclave.SessionID]bool)
	for _, begin := range slices.Compact(n.begins) {
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

// readLocks reads the queues of locks.
func (n *nesting) readLocks(ctx context.Context, c groupClient, locks []string) error {
	for _, lock := range locks {
		e, err := c.Explain(ctx, lock)
		if err != nil {
			return err
		}
		var holders []conclave.LockOwner
		if e.Held {
			holders = holdersOf(e)
		}
		for i, w := range e.Queue {
			if inTheWay := append(reservedFor(e.Queue[:i], w), holders...); len(inTheWay) > 0 {
				n.add(nestedWait{conclave.Wait{Lock: lock, Waiter: w}, e.Fence}, inTheWay...)
			}
		}
	}
	return nil
}

// reservedFor returns which of the waiters before another one have the lock reserved, in a mode that excludes it.
func reservedFor(before []conclave.LockOwner, w conclave.LockOwner) (sets []conclave.LockOwner) {
	for _, o := range before {
		if o.Reserved && !(o.Shared && w.Shared) {
			sets = append(sets, o)
		}
	}
	return sets
}

// readSessions reads which sessions are inside others, and which are for elections that others lead. No session is listed unless it matters.
func (n *nesting) readSessions(ctx context.Context, c groupClient) error {
	leaders := make(map[string]conclave.Leader)
	for l, err := range c.Elections(ctx, "") {
		if err != nil {
			return err
		}
		leaders[l.Name] = l
	}
	if len(n.begins) == 0 && len(leaders) == 0 {
		return nil
	}
	var candidates []conclave.SessionInfo
	leading := make(map[conclave.SessionID]conclave.SessionInfo) // by the session of a leader
	for _, l := range leaders {                                  // order: independent
		leading[l.Session] = conclave.SessionInfo{}
	}
	for s, err := range c.Sessions(ctx) {
		if err != nil {
			return err
		}
		if outer, ok := outerOf(s.Name); ok {
			n.inner[outer] = append(n.inner[outer], s.ID)
		}
		if _, ok := leading[s.ID]; ok {
			leading[s.ID] = s
		}
		if _, ok := electionOf(s.Name); ok {
			candidates = append(candidates, s)
		}
	}
	for _, s := range candidates {
		election, _ := electionOf(s.Name)
		l := leaders[election]
		if holder := leading[l.Session]; l.Fence != 0 && holder.ID == l.Session && s.ID != l.Session {
			w := conclave.Wait{Lock: election, Election: true, Waiter: ownerBy(s, conclave.Member{})}
			n.add(nestedWait{w, l.Fence}, ownerBy(holder, l.Member))
		}
	}
	return nil
}

// ownerBy is what is known of a handle by its session and its member.
func ownerBy(s conclave.SessionInfo, m conclave.Member) conclave.LockOwner {
	return conclave.LockOwner{
		Node: s.Node, NodeName: m.Name, Alive: m.Alive, Client: s.Client, Session: s.ID, SessionName: s.Name, TTL: s.TTL, Remaining: s.Remaining,
		Since: -1, Renewed: -1,
	}
}

// cycle returns a shortest way from a session back to it that leads into at least one command; nil: there is none.
func (n *nesting) cycle(begin conclave.SessionID) nestedCycle {
	type path struct {
		waits  nestedCycle
		nested bool
		at     conclave.SessionID
	}
	type state struct {
		nested bool
		at     conclave.SessionID
	}
	type waitedFor struct {
		nested   bool
		lock     string
		election bool
	}
	seen, passed := make(map[state]bool), make(map[waitedFor]bool)
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
			if key := (waitedFor{p.nested, w.Lock, w.Election}); passed[key] {
				continue // another waiter has led to its holders
			} else {
				passed[key] = true
			}
			for _, h := range w.holders {
				step := w.nestedWait
				step.Holder = h
				queue = append(queue, path{append(slices.Clip(p.waits), step), p.nested, h.Session})
			}
		}
		for _, inner := range n.inner[p.at] {
			queue = append(queue, path{p.waits, true, inner})
		}
	}
	return nil
}

// persists reads the waits of a cycle again.
func (c nestedCycle) persists(ctx context.Context, client groupClient) (bool, error) {
	for _, w := range c {
		if there, err := w.persists(ctx, client); !there || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (w nestedWait) persists(ctx context.Context, c groupClient) (bool, error) {
	if w.Election {
		l, err := c.Election(w.Lock).Leader(ctx)
		if err == nil {
			_, err = c.SessionInfo(ctx, w.Waiter.Session)
		}
		if errors.Is(err, conclave.ErrNoLeader) || errors.Is(err, conclave.ErrSessionNotFound) {
			return false, nil
		}
		return l.Fence == w.fence, err
	}
	e, err := c.Explain(ctx, w.Lock)
	by := func(s conclave.SessionID) func(conclave.LockOwner) bool {
		return func(o conclave.LockOwner) bool { return o.Session == s }
	}
	holds := e.Held && e.Fence == w.fence && slices.ContainsFunc(holdersOf(e), by(w.Holder.Session))
	if w.Holder.Reserved {
		holds = slices.ContainsFunc(e.Queue, func(o conclave.LockOwner) bool { return o.Reserved && o.Session == w.Holder.Session })
	}
	return holds && slices.ContainsFunc(e.Queue, by(w.Waiter.Session)), err
}

// holdersOf returns the holders of a lock that is held: one, or those that share it.
func holdersOf(e conclave.Explanation) []conclave.LockOwner {
	if e.Shared > 0 {
		return e.Holders
	}
	return []conclave.LockOwner{e.Holder}
}

// mayBeNested reports whether a holder of a lock may be in a cycle that the group does not know, because of commands inside sessions.
func mayBeNested(e conclave.Explanation) bool {
	isNested := func(o conclave.LockOwner) bool {
		_, nested := outerOf(o.SessionName)
		return nested
	}
	return len(e.Cycle) == 0 && (slices.ContainsFunc(holdersOf(e), isNested) || slices.ContainsFunc(e.Queue, isNested))
}

// of returns a cycle that a holder of a lock is in; nil: none.
func (s nestedSearch) of(lock string) nestedCycle {
	for _, cycle := range s.cycles {
		if slices.ContainsFunc(cycle, func(w nestedWait) bool { return w.Lock == lock }) {
			return cycle
		}
	}
	return nil
}
