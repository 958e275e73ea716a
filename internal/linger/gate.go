package linger

import "sync/atomic"

// Gate counts the holds of one owner in a tenure that it shares with others. Unlike a Tenure it
// is safe for concurrent use, and does not block.
type Gate struct {
	// The count, and the flags: one word, so that no owner enters once it is closed, and the last
	// one that leaves learns that it was.
	state atomic.Uint64
	used  atomic.Bool // since it was last asked for
}

const (
	closedFlag = 1 << iota
	watchedFlag
	one
)

// Enter adds a hold, unless the gate is closed or there are limit holds; 0 is no limit.
func (g *Gate) Enter(limit uint64) bool { return g.enter(limit, closedFlag, 0) }

// Reenter adds a hold to others, even if the gate is closed.
func (g *Gate) Reenter(limit uint64) bool { return g.enter(limit, 0, one) }

// Admit is Enter for an owner that came before the gate was closed.
func (g *Gate) Admit(limit uint64) bool { return g.enter(limit, 0, 0) }

func (g *Gate) enter(limit, unless, least uint64) bool {
	for {
		s := g.state.Load()
		if s&unless != 0 || s < least || limit != 0 && s/one >= limit {
			return false
		}
		if g.state.CompareAndSwap(s, s+one) {
			return true
		}
	}
}

// Exit removes a hold. ok is false if there is none. last reports that it was the last one of a
// gate that is closed or watched.
func (g *Gate) Exit() (ok, last bool) {
	for {
		s := g.state.Load()
		if s < one {
			return false, false
		}
		if g.state.CompareAndSwap(s, s-one) {
			if !g.used.Load() { // a write would cost each owner the cache line
				g.used.Store(true)
			}
			return true, s < 2*one && s&(closedFlag|watchedFlag) != 0
		}
	}
}

// Close has Enter fail from now on.
func (g *Gate) Close() { g.state.Or(closedFlag) }

// Retire closes a gate without holds, for an owner that may never come back. It reports whether there were none.
func (g *Gate) Retire() bool {
	s := g.state.Load()
	return s < one && g.state.CompareAndSwap(s, s|closedFlag)
}

// Watch has Exit report the last hold, or not.
func (g *Gate) Watch(on bool) {
	if on {
		g.state.Or(watchedFlag)
	} else {
		g.state.And(^uint64(watchedFlag))
	}
}

// Holds is the number of holds.
func (g *Gate) Holds() int { return int(g.state.Load() / one) }

// Used reports whether a hold has ended since the last call, or there is one.
func (g *Gate) Used() bool { return g.used.Swap(false) || g.Holds() > 0 }
