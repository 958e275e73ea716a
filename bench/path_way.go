package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/exp/trace"
)

// A call's way is found from its end: what woke the caller, what woke that goroutine, and
// so on, to the caller as the call began. What the network poller woke had a write to its
// connection for a cause.

// step is one goroutine's part of the way of a call.
type step struct {
	role    string
	network time.Duration // from the write until the network poller has noticed it
	waits   time.Duration // for a processor
	runs    time.Duration
	system  time.Duration // in system calls
}

// way returns the steps of a call, the first one first.
func (h *history) way(c traced) ([]step, error) {
	const most = 64
	var way []step
	g, at := c.caller, c.end
	for range most {
		s, woken, by := h.before(g, at, c.begin)
		way = append(way, s)
		if woken <= c.begin {
			if g != c.caller { // it was at work already when the call's message came
				return nil, fmt.Errorf("the %s began before the call", s.role)
			}
			slices.Reverse(way)
			return way, nil
		}
		if by == trace.NoGoroutine {
			w, ok := h.lastWrite(h.reads[g], woken)
			if !ok || w.begin <= c.begin {
				return nil, fmt.Errorf("no write of the call woke the %s", s.role)
			}
			by, at = w.by, min(w.end, woken)
			way[len(way)-1].network = time.Duration(woken - at)
		} else {
			at = woken
		}
		g = by
	}
	return nil, errors.New("the way does not end")
}

// before returns what a goroutine did from when it was woken until at, but not before
// begin, when that was, and what woke it.
func (h *history) before(g trace.GoID, at, begin trace.Time) (s step, woken trace.Time, by trace.GoID) {
	s.role = h.roles[g]
	all := h.spans[g]
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].from >= at {
			continue
		}
		took := time.Duration(at - max(all[i].from, begin))
		switch all[i].state {
		case trace.GoRunnable:
			s.waits += took
		case trace.GoRunning:
			s.runs += took
		case trace.GoSyscall:
			s.system += took
		default:
			return s, at, trace.NoGoroutine
		}
		at = all[i].from
		if at <= begin || all[i].woken {
			return s, at, all[i].by
		}
	}
	return s, begin, trace.NoGoroutine
}

// lastWrite returns the last one to a connection that had begun at a time.
func (h *history) lastWrite(connection string, t trace.Time) (write, bool) {
	all := h.writes[connection]
	i, _ := slices.BinarySearchFunc(all, t, func(w write, t trace.Time) int { return cmp.Compare(w.begin, t) })
	if i == 0 {
		return write{}, false
	}
	return all[i-1], true
}
