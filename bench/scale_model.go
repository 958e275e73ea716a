package main

import "math"

// The model of -scale. All times are in microseconds.
//
// Each group has one entry in each interval: a leader proposes the next entry when the last one is on its own disk. The
// interval is the longest of what can bound it, and the callers of a group share the entries that are under way. It is a
// bound from the demands (operational analysis), without queues: a measured rate is expected below it.

// task is a part of a member whose processor time is measured.
type task int

const (
	looping    task = iota // the group's loop, which is one goroutine
	storing                // the storage goroutine with Pebble's log writer, for which it waits
	connecting             // readers and writers of connections
	calling                // the callers and the client's part in their goroutines
	remaining              // the Go runtime, and what Pebble does in the background
	tasks                  // how many there are
)

var taskNames = [tasks]string{"the group's loop", "storage goroutine", "connections", "callers", "Go runtime, Pebble's background"}

// ofHost reports whether a member has the task once for all groups, so that entries that come together share a part of the work: a
// write to the disk or to a connection, and what wakes a goroutine.
func (t task) ofHost() bool { return t == storing || t == connecting || t == remaining }

// part is the processor time of an entry, and of each command in it. The shared part of the entry's is once for entries of several
// groups that come together.
type part struct{ entry, shared, command float64 }

// of is the time of each of so many entries together, with so many commands each.
func (p part) of(commands, together float64) float64 {
	return p.entry - p.shared + p.shared/together + p.command*commands
}

// parts is what a leader costs, or a follower.
type parts [tasks]part

func (r parts) of(commands, together float64) (sum float64) {
	for _, p := range r {
		sum += p.of(commands, together)
	}
	return sum
}

// costs is what the model is made of, besides the time of a sync.
type costs struct {
	leader, follower parts
	rounds           float64 // callers of a group for each command of an entry: how many intervals a command takes
}

// writes is how many synced writes a member makes in an interval. A write has what has come during the one before. So the groups
// alternate: while entries of one half are written, those of the other half come.
func writes(groups float64) float64 { return min(groups, 2) }

// hosting is where members run.
type hosting struct {
	procs  float64 // that each member has: its GOMAXPROCS, and as many cores
	shared float64 // cores that all members share; 0: each has cores of its own
	sync   float64 // how long a synced write waits for the disk
}

// cores returns how many a member has while the others have nothing to do.
func (p hosting) cores() float64 {
	if p.shared > 0 {
		return min(p.procs, p.shared)
	}
	return p.procs
}

// load is what the callers do: lock and unlock, each a lock of its own.
type load struct {
	groups  int
	callers float64 // of each group
}

type bottleneck string

const (
	byLoop       bottleneck = "loop"
	byStorage    bottleneck = "storage"
	bySync       bottleneck = "sync"
	byProcessors bottleneck = "processors"
	byCallers    bottleneck = "callers"
)

// estimate is what the model has for a load.
type estimate struct {
	cycles   float64 // of lock and unlock, a second, of all groups together
	interval float64 // between two entries of a group
	by       bottleneck
}

// estimate computes the rate, which the longest of the intervals below bounds.
func (c costs) estimate(p hosting, l load) estimate {
	k, n := c.commands(l), writes(float64(l.groups))
	stored, synced := c.stored(l), n*p.sync
	storedBy := byStorage
	if synced > stored {
		storedBy = bySync
	}
	var e estimate
	for _, bound := range []struct {
		interval float64
		by       bottleneck
	}{
		{c.alone(p, k) * k / l.callers, byCallers},
		{c.leader[looping].of(k, 1), byLoop},
		{synced + stored, storedBy},
		{c.processors(p, l), byProcessors},
	} {
		if bound.interval > e.interval {
			e.interval, e.by = bound.interval, bound.by
		}
	}
	if e.interval == 0 {
		return e // nothing was measured
	}
	e.cycles = 1e6 * float64(l.groups) * k / e.interval / commandsOfCycle
	return e
}

// commandsOfCycle is how many a caller's lock and unlock are.
const commandsOfCycle = 2

// led returns how many groups the member leads that leads most, and how many it follows.
func (l load) led() (led, followed float64) {
	led = math.Ceil(float64(l.groups) / members)
	return led, float64(l.groups) - led
}

// together returns how many entries of several groups share a synced write.
func (l load) together() float64 { return float64(l.groups) / writes(float64(l.groups)) }

// stored returns the storage goroutine's processor time in an interval.
func (c costs) stored(l load) float64 {
	k, n := c.commands(l), l.together()
	led, followed := l.led()
	return led*c.leader[storing].of(k, n) + followed*c.follower[storing].of(k, n)
}

// commands returns how many an entry has: the callers of a group are spread over the intervals that a command takes.
func (c costs) commands(l load) float64 { return max(1, l.callers/c.rounds) }

// alone returns how long a command takes that waits for nothing but its own entry, which has so many commands, and for the callers that
// have been woken with its own. The follower's write is the longer way: it begins later than the leader's.
func (c costs) alone(p hosting, commands float64) float64 {
	return c.leader[calling].of(commands, 1)/p.cores() + c.leader[looping].of(commands, 1) + c.leader[connecting].of(commands, 1) +
		c.follower[connecting].of(commands, 1) + c.follower[looping].of(commands, 1) + c.follower[storing].of(commands, 1) + p.sync
}

// processors returns the interval that the cores leave: of the member that leads most groups, and of all members where these share
// cores.
func (c costs) processors(p hosting, l load) float64 {
	k, n := c.commands(l), l.together()
	led, followed := l.led()
	interval := (led*c.leader.of(k, n) + followed*c.follower.of(k, n)) / p.procs
	if p.shared > 0 {
		interval = max(interval, float64(l.groups)*c.entry(l)/p.shared)
	}
	return interval
}

// entry returns the processor time of an entry on all members.
func (c costs) entry(l load) float64 {
	k, n := c.commands(l), l.together()
	return c.leader.of(k, n) + (members-1)*c.follower.of(k, n)
}

// cycle returns the processor time of a lock and unlock on all members.
func (c costs) cycle(l load) float64 { return commandsOfCycle * c.entry(l) / c.commands(l) }

// measured is the time of a task in one run, for each entry.
type measured struct{ commands, time float64 }

// typical is about how many commands cost as much as an entry without any. It only weights the runs.
const typical = 16

// fit returns the part that fits best, by squares of about the relative errors: else the largest entries would decide on what an
// entry costs that has next to nothing in it. Neither side of a part is negative.
func fit(runs []measured) part {
	var w, x, y, xx, xy float64 // weighted sums
	for _, r := range runs {
		weight := 1 / ((typical + r.commands) * (typical + r.commands))
		w, x, y = w+weight, x+weight*r.commands, y+weight*r.time
		xx, xy = xx+weight*r.commands*r.commands, xy+weight*r.commands*r.time
	}
	if w == 0 {
		return part{}
	}
	d := w*xx - x*x
	if d <= 1e-9*w*xx { // all runs have as many commands
		return part{entry: y / w}
	}
	p := part{entry: (y*xx - x*xy) / d, command: (w*xy - x*y) / d}
	switch {
	case p.entry < 0:
		return part{command: xy / xx}
	case p.command < 0:
		return part{entry: y / w}
	}
	return p
}
