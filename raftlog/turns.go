package raftlog

import (
	"slices"
	"time"
)

// turns bounds the part of the disk's time that large batches take while other logs have small submissions: the next large batch
// begins no sooner than after as much time as the last one took. Otherwise a log that is never without a large one would have its
// next batch begin whenever another log has nothing submitted for a moment, which then waits for that batch each time.
type turns struct {
	now func() time.Time
	// wait returns true once a small submission has come, and false after the limit. nil: large batches do not wait.
	wait  func(small <-chan struct{}, limit time.Duration) bool
	small chan struct{} // holds a token once a small submission has come

	last  group     // guarded by journal.mu; whose log the last large batch was for
	asked int       // guarded by journal.mu; how many more large batches wait, of those behind a small submission of another log
	next  time.Time // owned by the storage goroutine; when the next large batch may begin
}

// askedTurns is how many large batches wait behind a small submission: the callers of a log submit again within about two of them. A log that is alone
// waits for nothing.
const askedTurns = 2

// longestTurn bounds how long a large batch waits: a disk that stalled once is no reason to stall again.
const longestTurn = 20 * time.Millisecond

func newTurns(inline bool) turns {
	t := turns{now: time.Now, small: make(chan struct{}, 1)}
	if !inline { // else nothing can come meanwhile
		t.wait = waitForSmall
	}
	return t
}

func waitForSmall(small <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-small:
		return true
	case <-timer.C:
		return false
	}
}

// submitted notes a small submission. It is called with journal.mu held.
func (t *turns) submitted(by *Log) {
	if by.group != t.last {
		t.asked = askedTurns
	}
	select {
	case t.small <- struct{}{}:
	default:
	}
}

// awaitTurn writes the small submissions that come until the next large batch may begin, if the log has one. It runs on the storage goroutine.
func (j *journal) awaitTurn(of *Log) {
	for j.mustWait(of) {
		left := j.turns.next.Sub(j.turns.now())
		if left <= 0 || !j.turns.wait(j.turns.small, left) {
			return
		}
		taken := j.takeSmall()
		err := j.writeAll(taken)
		if j.store.Err() != nil {
			return // after a failure even a success may rest on a discarded write
		}
		report(taken, err)
	}
}

func (j *journal) mustWait(of *Log) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.turns.wait != nil && j.turns.asked > 0 &&
		slices.ContainsFunc(j.pending, func(s submission) bool { return s.log == of && s.isLarge() })
}

// writeTurn writes a large batch.
func (j *journal) writeTurn(of *Log, batch []submission) error {
	j.mu.Lock()
	j.turns.last, j.turns.asked = of.group, max(0, j.turns.asked-1)
	j.mu.Unlock()
	began := j.turns.now()
	err := j.writeAll(batch)
	ended := j.turns.now()
	j.turns.next = ended.Add(min(ended.Sub(began), longestTurn))
	return err
}
