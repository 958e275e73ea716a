package conclave

import (
	"fmt"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// TakenError is the reason why [LockSet.TryLock] was refused. It wraps ErrLocked, or ErrLockDelay if nothing but
// lock-delays is in the way.
type TakenError struct {
	Names []TakenName // that are not available, in the order of the set: the shared ones last
	delay bool        // nothing but lock-delays
}

// TakenName is a name that was not available to a set.
type TakenName struct {
	Name string
	// Session is that of an owner that holds the name, or has requested it before, and Node its process. They are zero
	// with a lock-delay alone, or if the owner's session has ended and is being released.
	Session SessionID
	Node    MemberID
	Fence   Fence         // of the hold; 0: there is none
	Shared  bool          // the owner is one of several that hold the name shared
	Waiting bool          // the owner holds nothing: it has requested the name before, and waits
	Own     bool          // another call of the handle holds the name, or has requested it
	Delay   time.Duration // lock-delay left
}

// maxTakenListed is how many names the text of a TakenError has.
const maxTakenListed = 3

// Error lists the first names and counts the others.
func (e *TakenError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v: ", e.Unwrap())
	for i, n := range e.Names[:min(len(e.Names), maxTakenListed)] {
		if i > 0 {
			s.WriteString("; ")
		}
		s.WriteString(n.String())
	}
	if more := len(e.Names) - maxTakenListed; more > 0 {
		fmt.Fprintf(&s, "; and %d more", more)
	}
	return s.String()
}

// Unwrap returns ErrLocked or ErrLockDelay.
func (e *TakenError) Unwrap() error {
	if e.delay {
		return ErrLockDelay
	}
	return ErrLocked
}

// heldByItself says that the handle itself is in the way.
const heldByItself = "held or requested by this handle: no handle takes a set twice"

// String says for people why the name was not available.
func (n TakenName) String() string {
	why := "was being released"
	switch {
	case n.Own:
		why = heldByItself
	case n.Session != SessionID{}:
		why = describeOwner(n.Session, n.Node, n.Fence, n.Shared, n.Waiting)
	case n.Delay > 0:
		why = fmt.Sprintf("in a lock-delay, %v left", n.Delay.Round(time.Millisecond))
	}
	return quote(n.Name) + " " + why
}

// taken lists the names that a reply to a request for the set has.
func (s *LockSet) taken(r *wire.Reply) *TakenError {
	e := &TakenError{delay: r.GetCode() == wire.Code_LOCK_DELAY}
	for _, t := range r.GetSet().GetTaken() {
		if int(t.GetName()) >= len(s.names) {
			continue
		}
		h := t.GetHolder()
		session, _ := wire.IDFrom(h.GetSession()) // else there is none
		e.Names = append(e.Names, TakenName{
			Name: s.names[t.GetName()], Session: SessionID(session), Node: MemberID(h.GetMember()), Fence: Fence(h.GetFence()),
			Shared: h.GetShared(), Waiting: h.GetWaiting(), Own: s.handle.IsHolder(h), Delay: duration(t.GetDelay()),
		})
	}
	return e
}

// takenByItself is what is in the way if the group was not asked: another call of the handle.
func (s *LockSet) takenByItself() *TakenError {
	e := new(TakenError)
	for _, name := range s.names {
		e.Names = append(e.Names, TakenName{Name: name, Own: true})
	}
	return e
}
