// Package maxhold computes when a hold that ends in time ends for its holder, by the local clock: before the group ends the hold,
// whatever was renewed or extended meanwhile.
package maxhold

import (
	"time"

	"github.com/conclave-go/conclave/internal/leaseclock"
)

type instant = leaseclock.Instant

// Reference is an instant at which group time had not passed Now: that of a request, whose entry has stated Now. The zero
// value is of none.
type Reference struct {
	Sent instant
	Now  int64
}

// Note takes the reference from a renewal that was sent at that instant, unless a later one has stated its time; 0: it has
// stated none.
func (r *Reference) Note(sent instant, now int64) {
	if now != 0 && sent >= r.Sent {
		*r = Reference{sent, now}
	}
}

// Outcome is what that of a request states of the end of a hold.
type Outcome struct {
	Sent    instant       // when the request was sent
	Allowed time.Duration // from when it was applied until the end
	Now     int64         // group time at which it was applied
	Index   uint64        // of its entry
}

// end is no later than the end of the hold in the group.
func (o Outcome) end() instant { return o.Sent + instant(leaseclock.Trusted(o.Allowed)) }

// End is when a hold ends for its holder. It is not safe for concurrent use.
type End struct {
	at      instant // as the group has acknowledged it last
	index   uint64  // of the entry that has decided it
	pending map[*Extension]struct{}
}

// Extension is an Extend whose outcome is unknown. If it is applied, the hold does not end before end.
type Extension struct{ sent, end instant }

// Granted returns the end of a hold that was granted.
//
// A holder may rely on all but the rate error between its clock and the leader's, of the time since its request, which
// may have waited for long, or since the last renewal, whichever is later.
func Granted(o Outcome, heard Reference) End {
	e := End{at: o.end(), index: o.Index}
	if left := time.Duration(o.Now - heard.Now + int64(o.Allowed)); heard.Now != 0 && left > 0 { // else it may have ended before
		e.at = max(e.at, heard.Sent+instant(leaseclock.Trusted(left)))
	}
	return e
}

// At returns the earliest instant at which the group may end the hold.
func (e *End) At() instant {
	at := e.at
	for x := range e.pending { // order: the minimum does not depend on it
		at = min(at, x.end)
	}
	return at
}

// Extend notes that an Extend by d is about to be sent: from then on the hold may end by it.
func (e *End) Extend(sent instant, d time.Duration) *Extension {
	x := &Extension{sent: sent, end: Outcome{Sent: sent, Allowed: d}.end()}
	if e.pending == nil {
		e.pending = make(map[*Extension]struct{})
	}
	e.pending[x] = struct{}{}
	return x
}

// Settle notes that an Extend has had no effect. One whose outcome never comes may have been applied, so the hold may end
// by it for ever.
func (e *End) Settle(x *Extension) { delete(e.pending, x) }

// Extended notes that an Extend was applied in the entry of that index, with that time until the end. After a snapshot,
// outcomes may come in another order than that of the entries.
func (e *End) Extended(x *Extension, allowed time.Duration, index uint64) {
	delete(e.pending, x)
	end := Outcome{Sent: x.sent, Allowed: allowed}.end()
	switch {
	case index > e.index:
		e.at, e.index = end, index
	case index == e.index:
		e.at = min(e.at, end)
	}
}
