package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave/internal/leaseclock"
	"github.com/conclave-go/conclave/internal/wire"
)

// renewal renews the registration of this process and all of its leases by one
// command, each third of the smallest time for which a renewal lasts. One renewal is
// under way at a time: it is retried until its outcome is known.
type renewal struct {
	commands *commands
	leases   *leases
	clock    *leaseclock.Clock
	idle     func() bool // Config.Idle

	begun  atomic.Bool // there is a timer
	used   atomic.Bool // a command was submitted since the last renewal
	lapsed atomic.Bool // there are no renewals until a command is submitted; set under mu

	mu      sync.Mutex
	timer   *time.Timer // guarded by mu
	due     instant     // guarded by mu; when the timer runs; never while a renewal is under way
	stopped bool        // guarded by mu

	lapsedAt instant // guarded by mu

	idleSince instant // owned by send; never: this process uses the group
}

// begin begins the renewals, unless they have begun: then the registration has had them begin again, if they had lapsed.
func (r *renewal) begin() {
	if r.begun.CompareAndSwap(false, true) {
		r.idleSince = never
		r.schedule(r.clock.Now())
	}
}

// schedule sets the timer to an interval after that time.
func (r *renewal) schedule(after instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped {
		r.due = after + instant(r.leases.smallestSpan()/3)
		r.leases.lookBy(r.due)
		r.timer = time.AfterFunc(max(r.clock.Until(r.due), 0), r.send)
	}
}

// woke brings the timer forward if it lags behind the clock.
func (r *renewal) woke() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.timer == nil || r.stopped || r.due == never:
	case r.clock.Now() < r.due:
		r.leases.lookBy(r.due)
	case r.timer.Stop():
		r.timer.Reset(0)
	}
}

// hasten brings the timer forward for a new lease that needs a renewal earlier. If the
// timer has fired already, schedule will see the lease. The lease is use, as the command was: what lapses meanwhile may have seen neither.
func (r *renewal) hasten(l *Lease) {
	r.use()
	if l.span == NoTTL {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.clock.Now() + instant(l.span/3)
	if r.timer != nil && due < r.due && r.timer.Stop() {
		r.due = due
		r.leases.lookBy(due)
		r.timer.Reset(r.clock.Until(due))
	}
}

func (r *renewal) send() {
	if r.lapse() {
		return
	}
	sent := r.clock.Now()
	renew := renewCommand()
	r.commands.group.Renew(wire.CommandSize(renew), func() []byte { return encode(renew) }, &call{commands: r.commands, on: func(a answer) {
		r.acknowledged(sent, a)
		r.schedule(sent)
	}})
}

// lapse runs when a renewal is due. It ends the renewals if this process uses nothing of the group, and reports whether it has. The client's own
// lease does not count as use for longer than two lives of a registration: the group cannot be quiet before it has ended.
func (r *renewal) lapse() bool {
	if r.idle == nil {
		return r.end(false)
	}
	used := r.used.Swap(false)
	own, idle := r.leases.unused()
	switch now := r.clock.Now(); {
	case used || !idle || !r.idle():
		r.idleSince = never
		return r.end(false)
	case own == nil:
		return r.end(true)
	default:
		if r.idleSince = min(r.idleSince, now); now-r.idleSince >= instant(2*r.leases.incarnationTTL) && own.retire() {
			own.closing.begun.Store(true)
			own.closeInGroup()
		}
		return r.end(false)
	}
}

// end notes that the renewal that is due begins, or, if this process is idle, that there is none until it submits a command. It reports which.
func (r *renewal) end(idle bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = never
	if !idle {
		return false
	}
	r.lapsed.Store(true)
	if r.used.Load() { // a command came meanwhile, and may not have seen that
		r.lapsed.Store(false)
		return false
	}
	r.lapsedAt = r.clock.Now()
	return true
}

// Lapsed reports whether the renewals lapsed at least that long ago, and no lease is open, or being opened.
func (c *Client) Lapsed(ago time.Duration) bool {
	own, idle := c.leases.unused()
	return idle && own == nil && c.renewal.lapsedFor(ago)
}

// expired reports whether the renewals lapsed so long ago that the group has forgotten this process.
func (r *renewal) expired() bool { return r.lapsedFor(2 * r.leases.incarnationTTL) }

func (r *renewal) lapsedFor(d time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lapsed.Load() && r.clock.Now()-r.lapsedAt > instant(d)
}

// use notes that a command is submitted, and begins the renewals again if they have lapsed. If the registration has expired, that
// command or the renewal finds out, and registers this process again.
func (r *renewal) use() {
	if r.idle == nil {
		return
	}
	if !r.used.Load() {
		r.used.Store(true)
	}
	if !r.lapsed.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lapsed.CompareAndSwap(true, false) && !r.stopped {
		r.due = r.clock.Now()
		r.timer.Reset(0)
	}
}

// Use notes that this process uses the group in a way that the client does not see, and begins the renewals again if they have lapsed.
func (c *Client) Use() { c.renewal.use() }

// acknowledged moves the deadlines of the leases that are bound to the incarnation
// that was renewed. They count from the moment at which the renewal was sent: the
// group's TTL cannot have begun earlier.
func (r *renewal) acknowledged(sent instant, a answer) {
	if a.fault() != nil {
		return
	}
	for _, l := range r.leases.live() {
		if l.incarnation == a.incarnation {
			l.acknowledged(sent, a.reply.GetNow())
		}
	}
}

// Renew renews the registration and all leases now. It blocks until the group has
// acknowledged it.
func (c *Client) Renew(ctx context.Context) error {
	sent := c.clock.Now()
	reply, err := c.send(ctx, renewCommand(), func(a answer) { c.renewal.acknowledged(sent, a) })
	if err != nil {
		return err
	}
	return refusal(reply)
}

func renewCommand() *wire.Command {
	return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}
}

func (r *renewal) isStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}

func (r *renewal) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
