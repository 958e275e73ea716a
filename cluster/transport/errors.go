package transport

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
)

var (
	// ErrClosed: the transport is closed.
	ErrClosed = errors.New("transport: closed")
	// ErrPlaintext: the address is not a loopback address, and neither TLS nor
	// Insecure is set.
	ErrPlaintext = errors.New("plaintext is allowed on loopback addresses only: configure TLS, or set Insecure if the network itself is trusted")
	// ErrUnknownPeer: the member is not in the address book.
	ErrUnknownPeer = errors.New("transport: the member is not in the address book")
	// ErrNotConnected: no connection to the member exists yet.
	ErrNotConnected = errors.New("transport: not connected yet")
	// ErrNotJoined: this member belongs to no cluster yet.
	ErrNotJoined = errors.New("transport: this member belongs to no cluster yet")
	// ErrNotConclave: what speaks at the other end is not a conclave member.
	ErrNotConclave = errors.New("transport: the other end does not speak conclave's protocol")
	// ErrTooLarge: a frame, packet or pair is over its limit.
	ErrTooLarge = errors.New("transport: over the size limit")
	// ErrBadFrame: what arrived is damaged or out of order.
	ErrBadFrame = errors.New("transport: bad frame")
	// ErrSnapshotRefused: the receiver did not install the snapshot.
	ErrSnapshotRefused = errors.New("transport: the receiver did not install the snapshot")
)

// Reason says which check of a hello failed.
type Reason string

// The reasons for which a connection is refused.
const (
	ReasonMalformed Reason = "malformed hello"
	ReasonProtocol  Reason = "no common protocol version"
	ReasonGroup     Reason = "another group"
	ReasonCluster   Reason = "another cluster"
	ReasonNoCluster Reason = "no cluster yet"
	ReasonMember    Reason = "another member"
	ReasonSelf      Reason = "connected to itself"
	ReasonClone     Reason = "copied data directory"
	ReasonRollback  Reason = "rolled-back data directory"
	ReasonStranger  Reason = "not a member"
	ReasonLeft      Reason = "not a member any more"
	ReasonBusy      Reason = "too many connections"
	ReasonKind      Reason = "unknown kind of connection"
	ReasonOther     Reason = "refused"
)

// RefusedError says that a hello was refused, and by whom.
type RefusedError struct {
	Addr   string // of the other end
	Here   bool   // this member refused the other; else the other refused this one
	Reason Reason
	Detail string
}

func (e *RefusedError) Error() string {
	if e.Here {
		return fmt.Sprintf("transport: refused the member at %s: %s: %s", e.Addr, e.Reason, e.Detail)
	}
	return fmt.Sprintf("transport: refused by the member at %s: %s: %s", e.Addr, e.Reason, e.Detail)
}

// text is the refusal as it travels; parseRefusal reads it.
func (e *RefusedError) text() string { return string(e.Reason) + ": " + e.Detail }

func parseRefusal(addr, text string) *RefusedError {
	reason, detail, ok := strings.Cut(text, ": ")
	switch r := Reason(reason); r {
	case ReasonMalformed, ReasonProtocol, ReasonGroup, ReasonCluster, ReasonNoCluster, ReasonMember, ReasonSelf,
		ReasonClone, ReasonRollback, ReasonStranger, ReasonLeft, ReasonBusy, ReasonKind:
		if ok {
			return &RefusedError{Addr: addr, Reason: r, Detail: detail}
		}
	}
	return &RefusedError{Addr: addr, Reason: ReasonOther, Detail: text} // by a later version
}

// isClosed recognises that our side, or nothing but the end of the connection,
// is behind an error.
func isClosed(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe)
}

// changes remembers what was said last about each subject, so that a fault
// that repeats itself is logged once. It is bounded: subjects come from outside.
type changes struct {
	mu   sync.Mutex
	last map[string]string
}

const maxSubjects = 256

func newChanges() *changes { return &changes{last: make(map[string]string)} }

// isNew reports whether this was not what was said last.
func (c *changes) isNew(subject, said string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.last[subject]; ok && last == said {
		return false
	}
	if len(c.last) >= maxSubjects {
		clear(c.last)
	}
	c.last[subject] = said
	return true
}

// level is how loud a refusal is to be said. While a group forms its members
// learn of that one after the other, so for a moment some refuse the others;
// everything else is for an operator to see to.
func (e *RefusedError) level() slog.Level {
	if e.Reason == ReasonNoCluster || e.Reason == ReasonStranger {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
