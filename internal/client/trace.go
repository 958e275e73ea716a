package client

import "github.com/conclave-go/conclave/internal/wire"

// Trace is what one call exchanges with its tracer; nil: the call has none. The calls of its
// functions are made on the goroutine of the caller.
type Trace struct {
	// ID identifies the call to other processes; nil: nothing does. A release carries it to
	// those whose grants it causes, once the group is at the level for that.
	ID []byte
	// Queued is called whenever the request has been queued, with a reply that has its
	// position and, if it is known, the holder.
	Queued func(*wire.Reply)
	// Cause is the ID of the release that caused the grant. An acquisition that waited sets it
	// before it returns; nil: there was none, or none is known.
	Cause []byte
}

// id returns the ID for a release.
func (tr *Trace) id() []byte {
	if tr == nil {
		return nil
	}
	return tr.ID
}

// places returns where a request leaves the reply that queued it; nil: it need not.
func (tr *Trace) places() chan *wire.Reply {
	if tr == nil {
		return nil
	}
	return make(chan *wire.Reply, 1)
}

// caused notes the result of a request that had these places. Meanwhile the result is where it was
// taken from, for the case that the tracer does not return.
func (tr *Trace) caused(from chan acquired, r acquired, places <-chan *wire.Reply) {
	if tr == nil {
		return
	}
	from <- r
	tr.drain(places)
	tr.Cause = r.cause
	<-from
}

// drain notes that the request was queued, if that is news: a result may overtake it.
func (tr *Trace) drain(places <-chan *wire.Reply) {
	if tr == nil {
		return
	}
	select {
	case r := <-places:
		tr.Queued(r)
	default:
	}
}

func (tr *Trace) queued(r *wire.Reply) {
	if tr != nil {
		tr.Queued(r)
	}
}

// traced adds the identity of the call to a command that releases, unless the group is below
// the level for it.
func (c *commands) traced(cmd *wire.Command, id []byte) *wire.Command {
	if len(id) == 0 || c.group.Level() < wire.LevelTrace {
		return cmd
	}
	switch op := cmd.GetOp().(type) {
	case *wire.Command_Unlock:
		op.Unlock.Trace = id
	case *wire.Command_UnlockSet:
		op.UnlockSet.Trace = id
	case *wire.Command_EndRun:
		op.EndRun.Trace = id
	case *wire.Command_Release:
		op.Release.Trace = id
	case *wire.Command_Downgrade:
		op.Downgrade.Trace = id
	}
	return cmd
}

// orLeave waits, and leaves if the tracer ends the goroutine meanwhile: there is no caller then.
func orLeave(wait func() (uint64, error), leave func(why error) error) (fence uint64, err error) {
	returned := false
	defer func() {
		if !returned {
			_ = leave(errLeaseEnded)
		}
	}()
	fence, err = wait()
	returned = true
	return fence, err
}
