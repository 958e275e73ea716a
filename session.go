package conclave

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/conclave-go/conclave/internal/client"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// SessionID identifies a session. It prints as a UUID and is never reused.
type SessionID [16]byte

// String prints the ID as a UUID.
func (id SessionID) String() string { return wire.ID(id).String() }

// MarshalText returns what String prints.
func (id SessionID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseSessionID.
func (id *SessionID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseSessionID(string(text))
	return err
}

// ParseSessionID parses what SessionID.String prints, in lower or upper case. It
// returns ErrInvalid for anything else.
func ParseSessionID(s string) (SessionID, error) {
	id, err := parseSessionID(s)
	return id, fault("parse session ID", s, err)
}

func parseSessionID(s string) (id SessionID, err error) {
	digits := strings.ReplaceAll(s, "-", "")
	if len(digits) == 2*len(id) {
		_, err = hex.Decode(id[:], []byte(digits))
	}
	if err != nil || !strings.EqualFold(id.String(), s) {
		return SessionID{}, fmt.Errorf("%w session ID: want 0123abcd-0123-0123-0123-0123456789ab, got %q", ErrInvalid, s)
	}
	return id, nil
}

// Session is a lease: what locks, permits, leaderships and keys are held under, after
// Chubby's and Consul's sessions. The node renews it for as long as the process runs.
// It outlives its last renewal by its TTL at least; with NoTTL it does not end by time.
// When it ends, everything that it holds is released, after its lock-delay unless it
// was closed by Close.
//
// Its deadline is the time by this process's clock until which nothing that it holds can
// be granted to another owner for want of a sign of life, whatever the network does. It
// is the earliest of: the TTL; five seconds and the lock-delay, if the session depends
// on the check gossip, and with NoTTL a minute at most, for which the group keeps the
// registration of a silent process; and, of each of its checks with a TTL, that TTL and
// the lock-delay. The first two count from the sending of the last acknowledged renewal,
// the last from that of the last acknowledged Pass, Warn or registration; 1 % is taken
// off for clocks that differ in speed. The node renews by thirds of the first two.
//
// Each node has a session of its own in each group, which it opens when that is first needed. In a further
// group that ends when nothing was held by it, waited for or changed for about two minutes, and the
// next call opens another one. More come from [Group.NewSession] and [Group.AttachSession]. All methods are safe for
// concurrent use.
type Session struct {
	group *Group
	lease *client.Lease
}

// SessionConfig configures a session. The zero value, like a nil *SessionConfig, is a
// session with all defaults.
type SessionConfig struct {
	// Name is for people, up to 512 bytes, and for the numbers of permits: see [Permit.Slots].
	// Sessions may share a name. Default: none.
	Name string
	// TTL is how long the session outlives its last renewal, at least, unless a check
	// ends it: 1 s to 24 h, or NoTTL. With less than two election timeouts a leader
	// election may end the session. Default: 10 s.
	TTL time.Duration
	// LockDelay is for how long what the session held cannot be acquired after the
	// session was invalidated, that is ended otherwise than by Close: 1 ms to 60 s, or
	// NoLockDelay. It gives a holder that does not know yet time to stop, and one that
	// depends on checks time until its deadline: with the check gossip, a partition of
	// five seconds and the lock-delay ends the session, however long its TTL. Default:
	// 15 s.
	LockDelay time.Duration
	// Behavior is what happens to the keys that the session holds when it ends.
	// Default: ReleaseKeys.
	Behavior Behavior
	// Checks names checks of this member, up to 16. The session ends at once when one
	// of them becomes critical or is deregistered. Default: the built-in check
	// "gossip", which is critical while the group's failure detector has declared
	// this process dead, and after it was closed. [ProcessCheck] is built in too. A
	// client has no checks.
	Checks []string
	// NoChecks makes the session depend on no check, for safety rather than liveness:
	// a false positive of the failure detector ends nothing then. Checks must be
	// empty.
	NoChecks bool
}

const (
	// NoTTL is the TTL of a session that does not end by time. With NoChecks it
	// outlives its process with all that it holds: Node.Close, a crash and a restart.
	// It ends with Session.Close, Node.CloseSession, Node.Leave, or one of its
	// checks; the default check, gossip, becomes critical soon after its process has
	// ended. Another process attaches it with Node.AttachSession. A partitioned
	// process trusts such a session for as long as the partition lasts. With checks
	// it has a deadline: see Session.
	NoTTL time.Duration = -1 // as in internal/client
	// NoLockDelay releases what a session held at once.
	NoLockDelay time.Duration = -1
)

// gossipCheck is the built-in check that sessions depend on by default.
const gossipCheck = "gossip"

// ProcessCheck is the built-in check of the crash of this process, for [SessionConfig] and
// [Config]: critical when the process's connections were closed by its host and dialing its
// address is refused, as seen by a majority of the voters. What a crashed process held is
// released within a second then, in place of a TTL. A machine that fails, a process that is
// paused and a partition close nothing: there the TTL and the check gossip decide. After a
// graceful [Node.Close] it is not critical.
//
// Like the check gossip it can be wrong, by a middlebox that resets and refuses, such as a
// proxy beside the process: then a living holder can be overtaken before its own deadline, as after
// [Group.CloseSession], and only the fence or a lock-delay helps. So it does not count in
// the deadline of a [Session], and a session depends on it only on request. Where something else
// accepts connections in place of the process, as some port forwarders do, it never
// becomes critical.
//
// It needs feature level 7: see [Status]. It is passing again when another process of the
// member has started, or when the leader is connected to this one.
const ProcessCheck = client.ProcessCheck

// Behavior is what happens to the keys that a session holds when it ends.
type Behavior int

const (
	// ReleaseKeys keeps the keys and their values, held by no session.
	ReleaseKeys Behavior = iota
	// DeleteKeys deletes the keys.
	DeleteKeys
)

// String returns "release" or "delete".
func (b Behavior) String() string {
	switch b {
	case ReleaseKeys:
		return "release"
	case DeleteKeys:
		return "delete"
	}
	return fmt.Sprintf("Behavior(%d)", int(b))
}

// withDefaults returns a copy in which every field is set, or all faults at once.
func (c *SessionConfig) withDefaults(mayCheck bool) (SessionConfig, error) {
	var d SessionConfig
	if c != nil {
		d = *c
	}
	setDefault(&d.TTL, 10*time.Second)
	setDefault(&d.LockDelay, 15*time.Second)
	if d.LockDelay == NoLockDelay {
		d.LockDelay = 0
	}
	if len(d.Checks) == 0 && !d.NoChecks && mayCheck {
		d.Checks = []string{gossipCheck}
	}
	d.Checks = slices.Clone(d.Checks)
	return d, d.validate(mayCheck)
}

func (c *SessionConfig) validate(mayCheck bool) error {
	var faults []error
	if len(c.Checks) > 0 && !mayCheck {
		faults = append(faults, fmt.Errorf("%w Checks: a client has none, so want none, got %d", ErrInvalid, len(c.Checks)))
	}
	if c.Name != "" {
		faults = append(faults, validName(c.Name))
	}
	if low, high := duration(machine.MinTTL), duration(machine.MaxTTL); c.TTL != NoTTL && (c.TTL < low || c.TTL > high) {
		faults = append(faults, fmt.Errorf("%w TTL: want %v to %v or NoTTL, got %v", ErrInvalid, low, high, c.TTL))
	}
	if high := duration(machine.MaxLockDelay); c.LockDelay != 0 && (c.LockDelay < minDuration || c.LockDelay > high) {
		faults = append(faults, fmt.Errorf("%w LockDelay: want %v to %v or NoLockDelay, got %v", ErrInvalid, minDuration, high, c.LockDelay))
	}
	if c.Behavior != ReleaseKeys && c.Behavior != DeleteKeys {
		faults = append(faults, fmt.Errorf("%w Behavior: want ReleaseKeys or DeleteKeys, got %d", ErrInvalid, int(c.Behavior)))
	}
	if c.NoChecks && len(c.Checks) > 0 {
		faults = append(faults, fmt.Errorf("%w Checks: NoChecks is set, so there must be none", ErrInvalid))
	}
	return errors.Join(append(faults, validChecks("Checks", c.Checks)...)...)
}

// validChecks checks the names of checks that a session depends on.
func validChecks(field string, names []string) (faults []error) {
	if len(names) > machine.MaxSessionChecks {
		return []error{fmt.Errorf("%w: %d %s, the limit is %d", ErrTooLarge, len(names), field, machine.MaxSessionChecks)}
	}
	for i, name := range names {
		if err := validName(name); err != nil {
			faults = append(faults, fmt.Errorf("check %q: %w", name, err))
		}
		if slices.Contains(names[:i], name) {
			faults = append(faults, fmt.Errorf("%w %s: %q is there twice", ErrInvalid, field, name))
		}
	}
	return faults
}

// NewSession opens a session that is bound to this process. It blocks until the group
// has agreed. If ctx is done first, a session that may have been opened is closed in
// the background. A nil cfg takes all defaults.
//
// Errors: ErrInvalid with every fault of cfg at once, and for a check that this member
// has not registered; ErrUpgradeRequired for [ProcessCheck] while a member of the group runs
// a build that does not know it; ErrCheckCritical; ErrTooLarge; ErrBusy with too many sessions
// or calls under way; ErrClosed; and ctx's with ErrUnavailable or ErrUnknown.
func (g *Group) NewSession(ctx context.Context, cfg *SessionConfig) (*Session, error) {
	checked, err := cfg.withDefaults(g.isNode)
	var lease *client.Lease
	if err == nil {
		err = dependable(ctx, g, checked.Checks)
	}
	if err == nil {
		lease, err = g.client.Open(ctx, leaseConfig(checked))
	}
	if err != nil {
		return nil, fault("new session", checked.Name, err)
	}
	return g.session(lease), nil
}

// dependable has the group know the checks that a session is to depend on, as far as its feature level decides that.
func dependable(ctx context.Context, g *Group, checks []string) error {
	if !slices.Contains(checks, ProcessCheck) {
		return nil
	}
	return g.raiseLevel(ctx, wire.LevelProcess)
}

// AttachSession binds a session with NoTTL, whose process has ended, to this process.
// The earlier process may have been one of this member or of another. If the session
// is bound to this process already, AttachSession returns it. It blocks until the
// group has decided. If ctx is done first the session may be bound all the same; a
// later AttachSession then returns it.
//
// A session outlives its process if it was opened with NoChecks, or if none of its
// checks has ended it; the default check, gossip, does so soon after the process has
// ended.
//
// What the session holds stays held. To use it, do what the earlier process did: the
// first Lock or TryLock of a lock, Campaign in an election, or Acquire of as many
// permits claims what the session holds, at once, ahead of all waiters, and with a new
// fence, so that the resource refuses the earlier process from the first request on.
// Permits of a semaphore whose limit is smaller now can be claimed when Resize has raised
// it to their number again; until then they stay held. The session's checks are from then on those of this member.
//
// Errors: ErrSessionNotFound; ErrSessionBound while the group counts its process as
// alive; ErrInvalid if the session has a TTL, or this member lacks one of its checks;
// ErrCheckCritical; ErrBusy; ErrClosed; and ctx's with ErrUnavailable or ErrUnknown. A
// process that shuts down gracefully or restarts no longer counts at once; any other
// after a minute of silence, and not before its sessions with a TTL have expired.
func (g *Group) AttachSession(ctx context.Context, id SessionID) (*Session, error) {
	lease, err := g.client.Attach(ctx, wire.ID(id))
	if err != nil {
		return nil, fault("attach session", id.String(), notFound(err))
	}
	return g.session(lease), nil
}

// session returns the one Session of a lease, which may be attached more than once.
func (g *Group) session(l *client.Lease) *Session {
	return l.Wrapper(func() any { return &Session{group: g, lease: l} }).(*Session)
}

// CloseSession ends any session of the group by force, for operators. What the session
// holds is released at once, or after its lock-delay if it has one, and its process is
// notified. A partitioned process learns of it only at the session's deadline, and may
// trust until then that it holds what others have been granted: lock-delay and fences
// are for that.
//
// It blocks until the group has agreed. Errors: ErrSessionNotFound; ErrBusy; ErrClosed;
// ErrUnavailable or ErrUnknown with ctx's, and ErrUnknown alone if the registration of
// this process expired meanwhile. It is idempotent.
func (g *Group) CloseSession(ctx context.Context, id SessionID) error {
	return fault("close session", id.String(), notFound(g.client.CloseSession(ctx, wire.ID(id))))
}

// notFound is for operations on a session that is not this process's: there it has
// not expired, but is unknown.
func notFound(err error) error {
	var f *client.Fault
	if errors.As(err, &f) && f.Kind == client.Refused && f.Reply.GetCode() == wire.Code_SESSION_EXPIRED {
		return ErrSessionNotFound
	}
	return err
}

// ID returns the session's ID.
func (s *Session) ID() SessionID { return SessionID(s.lease.ID()) }

// Done returns a channel that is closed when the session has ended: at its deadline by
// this process's own clock, whatever the network does; by the group; or by a close.
// Err returns which. A session with NoTTL and without checks has no deadline.
//
// [FencedLock.Lost] lists what ends a session at once, without a deadline.
func (s *Session) Done() <-chan struct{} { return s.lease.Done() }

// Err returns nil while the session lives. Afterwards it returns an error that wraps
// ErrSessionExpired or ErrClosed. It reads the clock itself.
func (s *Session) Err() error { return fault("session", s.ID().String(), s.lease.Err()) }

// Renew renews this session, and with it every session of the process, now. The node
// renews them by itself; Renew is for a program that must know that the session was
// alive at some time after the call began. It blocks until the group has acknowledged
// the renewal, and moves the deadline of Done. Errors: ErrSessionExpired, ErrClosed,
// ErrBusy with too many calls under way, and ctx's with ErrUnavailable or ErrUnknown.
func (s *Session) Renew(ctx context.Context) error {
	err := s.lease.Err()
	if err == nil {
		err = s.group.client.Renew(ctx)
	}
	if ended := s.lease.Err(); ended != nil {
		err = ended
	}
	return fault("renew", s.ID().String(), err)
}

// Close ends the session: first here, where it closes Done and the Lost channels of
// all that the session holds, then in the group, which releases everything at once and
// without a lock-delay. It blocks until the group has done so. If ctx is done first,
// the close is pursued in the background, and the error wraps ctx's and ErrUnknown.
//
// Close may be called more than once. It does nothing and returns nil if the session
// had ended otherwise; but if it has ended only here and lives on in the group, as one
// with NoTTL can, it returns the reason: Node.CloseSession ends it.
func (s *Session) Close(ctx context.Context) error {
	return fault("close session", s.ID().String(), s.lease.Close(ctx))
}

// SessionInfo describes a session.
type SessionInfo struct {
	ID             SessionID
	Name           string
	Node           MemberID      // of its process, or of the last one if it is unbound
	Client         bool          // Node is a client; see [Dial]
	TTL, LockDelay time.Duration // as it was opened; TTL may be NoTTL
	Remaining      time.Duration // until it expires, unless it is renewed; 0 with NoTTL
	Behavior       Behavior
	Checks         []string // that can end it
	CreateIndex    uint64
	Standalone     bool // bound to no process: see Group.CreateSession
}

// Sessions lists the sessions of the group, by create index. It reads pages, as
// [Group.Locks] does.
func (g *Group) Sessions(ctx context.Context, opts ...ListOption[SessionInfo]) iter.Seq2[SessionInfo, error] {
	after := listingOf(opts).after
	first := machine.SessionCursor{CreateIndex: after.CreateIndex, ID: wire.ID(after.ID)}
	return pages(ctx, g, "list sessions", "", listing[machine.SessionCursor]{after: first}, func(after machine.SessionCursor) machine.Query {
		return machine.SessionsQuery{After: after, Limit: pageSize}
	}, machine.SessionView.Cursor, sessionInfo)
}

func sessionInfo(s machine.SessionView) SessionInfo {
	info := SessionInfo{
		ID: SessionID(s.ID), Name: s.Name, Node: MemberID(s.Member), Client: s.Client,
		TTL: duration(s.TTL), LockDelay: duration(s.LockDelay), Remaining: duration(s.Remaining),
		Behavior: Behavior(s.Behavior), Checks: slices.Clone(s.Checks), CreateIndex: s.CreateIndex, Standalone: s.Standalone,
	}
	if s.TTL == 0 {
		info.TTL = NoTTL
	}
	return info
}
