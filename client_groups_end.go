package conclave

import (
	"context"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/remote"
)

// A client leaves a further group that it does not use: it closes the connection, and its registration expires. An attached client
// has its member renew the registration, so a group that was used once would not be quiet before the client ended. The next call
// reaches the group again, as the first one did: with another connection and another registration. So there is no state between the
// two, in which a call could be submitted under a registration that has expired.

const (
	// leaveAfter is for how long a client uses nothing of a group before it leaves: as long as a member's own process with a session. Each return costs an entry.
	leaveAfter = 2 * time.Minute
	// leaveLook is how often a client that has a session in the group, or calls, looks whether it still has. A registration from which nothing is needed any
	// more is not renewed, so it has to be shorter than that lasts.
	leaveLook = 20 * time.Second
	// lapsedFor is for how long the renewals have lapsed at least when a client leaves. A release that the group was too busy for is submitted again within 2 seconds,
	// and begins them again.
	lapsedFor = 5 * time.Second
)

// groupUse is the use of a further group by calls. clientGroups.mu guards it.
type groupUse struct {
	calls  int // under way
	since  time.Time
	leaves chan struct{} // closed when it is decided whether the client leaves, as it is about to; nil: it is not
	timer  *time.Timer   // of look; nil: the group was not reached yet
}

// enter is client.Config.Enter.
func (f *remoteGroup) enter(ctx context.Context, stale bool) (leave func(), err error) {
	if err := f.beginCall(ctx); err != nil {
		return nil, err
	}
	if err := f.reach(ctx, stale); err != nil {
		f.endCall()
		return nil, err
	}
	return f.endCall, nil
}

// beginCall notes that a call is under way, so that the client does not leave, and renewals that have lapsed begin again. It blocks while it is about to leave.
// In a group that was left there is nothing to renew before the client returns, and the end of the client, which does not end what it does not use, would leave
// the timer of the renewals.
func (f *remoteGroup) beginCall(ctx context.Context) error {
	for g := f.owner.groups; ; {
		g.mu.Lock()
		leaves, left := f.use.leaves, f.last != nil && f.last.left
		if leaves == nil {
			f.use.calls++
		}
		g.mu.Unlock()
		if leaves == nil {
			if !left { // else the registration has them begin again
				f.client.Use()
			}
			return nil
		}
		select {
		case <-leaves:
		case <-ctx.Done():
			return &client.Fault{Kind: client.Unavailable, Cause: client.ContextError(ctx)}
		}
	}
}

func (f *remoteGroup) endCall() {
	g := f.owner.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	f.use.calls--
	f.use.since = time.Now()
}

// idle is client.Config.Idle: once the renewals lapse, the client is about to leave. A call that begins meanwhile is use to the client.
func (f *remoteGroup) idle() bool {
	g := f.owner.groups
	g.mu.Lock()
	unused, r := f.use.unused() >= leaveAfter, f.last.remote
	g.mu.Unlock()
	return unused && r.Unused(false)
}

// unused returns for how long there has been no call.
func (u *groupUse) unused() time.Duration {
	if u.calls > 0 {
		return 0
	}
	return time.Since(u.since)
}

// watchUse has look run. g.mu is held, and the group is reached.
func (f *remoteGroup) watchUse() {
	if f.owner.groups.closed {
		return
	}
	if f.use.since = time.Now(); f.use.timer == nil {
		f.use.timer = time.AfterFunc(leaveAfter, f.look)
	} else {
		f.use.timer.Reset(leaveAfter)
	}
}

// look has the client leave if it does not use the group.
func (f *remoteGroup) look() {
	g := f.owner.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	switch unused := f.use.unused(); {
	case g.closed, g.used[f.number] != f, !f.last.serves():
	case unused < leaveAfter:
		f.use.timer.Reset(max(leaveAfter-unused, leaveLook))
	case !f.owner.cfg.ReadOnly && !f.client.Lapsed(lapsedFor):
		f.use.timer.Reset(leaveLook)
	default:
		f.use.leaves = make(chan struct{})
		r := f.last.remote
		g.routines.Go(func() { f.leave(r) })
	}
}

// leave leaves the group by ending the connection, unless something in this process waits for the group. No call begins meanwhile. What goes on without a call, such as a release whose
// caller's ctx was done, has a session, waits for an outcome, or has the renewals go on.
func (f *remoteGroup) leave(r *remote.Group) {
	g := f.owner.groups
	left := (f.owner.cfg.ReadOnly || f.client.Lapsed(lapsedFor)) && r.Unused(true)
	g.mu.Lock()
	close(f.use.leaves)
	f.use.leaves = nil
	if left {
		f.last.left = true
		if g.used[f.number] == f {
			delete(g.used, f.number)
		}
	} else if !g.closed && g.used[f.number] == f {
		f.use.timer.Reset(leaveLook)
	}
	g.mu.Unlock()
	if left {
		r.Close(remote.ErrClosed)
	}
}

// deleted ends the use of a group that is deleted. A handle that has not reached the group belongs to none, and can reach a later one.
func (g *clientGroups) deleted(name string, number uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.used[number]
	if left := g.handles.byName[name].Value(); f == nil && left != nil && left.number == number && left.reached {
		f = left
	}
	switch {
	case f == nil || g.closed:
	case f.reached:
		g.end(f)
	case f.last.failed():
		delete(g.used, number)
	case f.last.serves(): // stale reads
		a := f.last
		a.left = true
		delete(g.used, number)
		g.routines.Go(func() { a.remote.Close(remote.ErrDeleted) })
	default:
		a := f.last
		a.deleted = true
		g.routines.Go(func() { a.remote.Close(remote.ErrDeleted) })
	}
}

// end ends the use of a group that is deleted. g.mu is held.
func (g *clientGroups) end(f *remoteGroup) {
	if f.deleted.Err() != nil || g.closed {
		return // the shutdown of the client ends the use
	}
	if g.used[f.number] == f {
		delete(g.used, f.number)
	}
	g.handles.forget(f.name, f)
	if f.use.timer != nil {
		f.use.timer.Stop()
	}
	f.delete()
	r := f.last.remote
	g.routines.Go(func() {
		f.client.Stopping(cluster.ErrGroupDeleted, false)
		r.Close(remote.ErrDeleted)
		f.client.Stopped(cluster.ErrGroupDeleted, false)
		f.client.Wait()
	})
}
