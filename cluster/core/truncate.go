package core

import "github.com/conclave-go/conclave/raftlog"

// stateShare is the part of the state's size that the log may have before it is
// truncated: what is cheaper to send than the state is worth its memory.
const stateShare = 8

// truncate truncates the log behind the applied entry once that is worth a write. It
// keeps some applied entries, from which a lagging member catches up without a snapshot,
// the more the larger a snapshot would be; those that a member with a snapshot in
// flight needs after it; and for a while all of them while voters differ.
func (c *Core) truncate() {
	first, _ := c.log.FirstIndex()
	if first <= c.truncated {
		return // in flight; Bytes still counts it
	}
	keep, keepBytes := c.retention()
	if c.applied < first+2*keep && c.log.Bytes() < 2*keepBytes {
		return
	}
	if c.arbitration.disputed != 0 && c.log.Bytes() < 2*keepBytes+firstAllowance {
		return // a voter that returns decides by its own log: no snapshot is sent
	}
	if c.log.Bytes() >= 2*keepBytes {
		keep = min(keep, (c.applied-first)/2)
	}
	if c.applied < first+keep {
		return
	}
	if index := c.neededFrom(c.applied-keep, keepBytes); index >= first {
		if index > c.checkpoint {
			c.Checkpoint()
		}
		c.truncated = index
		c.disk.add(write{op: raftlog.Truncate{Index: index}})
	}
}

// retention returns how many applied entries and bytes the log keeps at least.
func (c *Core) retention() (entries, bytes uint64) {
	factor := max(1, c.machine.Size()/stateShare/max(1, c.cfg.KeepBytes))
	return factor * c.cfg.Keep, factor * c.cfg.KeepBytes
}
