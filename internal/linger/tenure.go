// Package linger is the state machine of a lingering lock in the process that keeps it. It
// does no input and output, and knows no clock: package client drives it for callers, and
// the simulator for programs.
package linger

// Tenure is the time for which a process keeps a lock, and in which the process itself
// grants it to the owners that wait here, one after the other, each with a fence of its
// own from blocks that the group has reserved:
//
//	requested ──Begin──> kept ──Close, and the last owner here has released──> over
//
// Owners may wait from the request on. From Close on no newcomer is admitted: another
// process waits behind this tenure, or no owner has come for a while. So what waits here
// comes before what queues in the group after it, and what comes later goes behind that.
// A Tenure is not safe for concurrent use.
type Tenure[O any] struct {
	kept, closed, over bool
	busy               bool // an owner has the lock
	queue              queue[O]
	block, spare       block
	size               uint32 // of the last block
	refilling, dry     bool   // a block was asked for; or was refused
}

// block is what is left of a block of fences.
type block struct{ next, left uint64 }

// Action is what a step of a tenure does.
type Action int

const (
	Wait    Action = iota // for the next event
	Serve                 // grant the lock to Owner, with Fence
	Refuse                // send Owner away: there are no fences left; it may wait for another tenure
	Refill                // ask the group for Fences more
	Release               // release the lock in the group: the tenure is over
)

// Step is what has to be done next.
type Step[O any] struct {
	Action Action
	Owner  O
	Fence  uint64
	Fences uint32
}

// Open reports whether newcomers may join.
func (t *Tenure[O]) Open() bool { return !t.closed }

// Begun reports that the lock was granted to this process.
func (t *Tenure[O]) Begun() bool { return t.kept }

// Kept reports that the lock is kept: it was granted to this process, and not released.
func (t *Tenure[O]) Kept() bool { return t.kept && !t.over }

// Idle reports that the lock is kept and that no owner has it or waits for it here.
func (t *Tenure[O]) Idle() bool { return t.Kept() && !t.busy && t.queue.len == 0 }

// Waiting is how many owners wait here.
func (t *Tenure[O]) Waiting() int { return t.queue.len }

// Join has an owner wait.
func (t *Tenure[O]) Join(p *Place[O]) { t.queue.push(p) }

// Leave ends the wait of an owner. It reports whether the owner was still waiting.
func (t *Tenure[O]) Leave(p *Place[O]) bool {
	waiting := p.waiting
	if waiting {
		t.queue.remove(p)
	}
	return waiting
}

// Each calls f with each owner that waits, in their order.
func (t *Tenure[O]) Each(f func(O)) {
	for p := t.queue.first; p != nil; p = p.next {
		f(p.Owner)
	}
}

// Expel ends the wait of some owners, and returns them.
func (t *Tenure[O]) Expel(meant func(O) bool) (expelled []O) {
	for p := t.queue.first; p != nil; {
		next := p.next
		if meant(p.Owner) {
			t.queue.remove(p)
			expelled = append(expelled, p.Owner)
		}
		p = next
	}
	return expelled
}

// Take is Join and Serve in one for an owner that need not wait.
func (t *Tenure[O]) Take() (fence uint64, ok bool) {
	if t.closed || !t.Idle() || t.left() == 0 {
		return 0, false
	}
	t.busy = true
	return t.fence(), true
}

// Begin begins the tenure: the group has granted the lock, with n fences from first on.
func (t *Tenure[O]) Begin(first uint64, n uint32) {
	t.kept = true
	t.block, t.size = block{first, uint64(n)}, n
}

// Refilled adds n fences from first on; with n 0, there are no more.
func (t *Tenure[O]) Refilled(first uint64, n uint32) {
	t.refilling, t.dry = false, n == 0
	t.spare, t.size = block{first, uint64(n)}, n
}

// Freed notes that the owner has released the lock.
func (t *Tenure[O]) Freed() { t.busy = false }

// Close admits no newcomers any more.
func (t *Tenure[O]) Close() { t.closed = true }

// Abort ends a tenure that has not begun, and returns those that wait.
func (t *Tenure[O]) Abort() (waiting []O) {
	t.closed, t.over = true, true
	for t.queue.len > 0 {
		waiting = append(waiting, t.queue.pop())
	}
	return waiting
}

// Next returns the next step. Call it until it says Wait.
func (t *Tenure[O]) Next() Step[O] {
	switch left := t.left(); {
	case !t.Kept():
	case !t.busy && t.queue.len > 0 && left > 0:
		t.busy = true
		return Step[O]{Action: Serve, Owner: t.queue.pop(), Fence: t.fence()}
	case t.queue.len > 0 && left == 0 && t.dry:
		t.closed = true
		return Step[O]{Action: Refuse, Owner: t.queue.pop()}
	case t.Idle() && (t.closed || left == 0 && t.dry):
		t.closed, t.over = true, true
		return Step[O]{Action: Release}
	case t.needsFences(left):
		t.refilling = true
		return Step[O]{Action: Refill, Fences: 2 * t.size}
	}
	return Step[O]{}
}

// needsFences reports whether it is time to ask for the next block: early enough that no
// owner waits for it, and each twice as large, so that a short tenure takes few. The group
// bounds what it gives.
func (t *Tenure[O]) needsFences(left uint64) bool {
	switch {
	case t.refilling || t.dry || t.spare.left > 0:
		return false
	case t.closed:
		return uint64(t.queue.len) > left
	}
	return left <= uint64(t.size)/2
}

func (t *Tenure[O]) left() uint64 { return t.block.left + t.spare.left }

// fence takes the next fence. There must be one.
func (t *Tenure[O]) fence() uint64 {
	if t.block.left == 0 {
		t.block, t.spare = t.spare, block{}
	}
	f := t.block.next
	t.block.next++
	t.block.left--
	return f
}
