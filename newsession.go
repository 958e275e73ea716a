package conclave

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// SessionConfig says what a session is to be like. The zero value, like a nil
// *SessionConfig, is a session with all defaults.
type SessionConfig struct {
	// Name is for people: at most 512 bytes. Sessions may share one. Default: none.
	Name string
	// TTL is how long the session outlives its last renewal, at least: 1 s to
	// 24 h, or NoTTL, which goes with NoChecks if the session is to outlive its
	// process. Default 10 s. With less than two election timeouts a change
	// of leader may end it.
	TTL time.Duration
	// LockDelay is how long nobody else can have what the session held after it
	// was ended otherwise than by Close: at most 60 s, or NoLockDelay. It gives a
	// holder that does not know yet time to stop. Default 15 s.
	LockDelay time.Duration
	// Behavior is what becomes of the keys that the session has locked when it
	// ends. Default: Release.
	Behavior Behavior
	// Checks are names of checks of this member, at most 16. The session ends at
	// once when one of them becomes critical or is deregistered. Default, for
	// nil: the built-in "gossip", which is critical while the others believe that
	// this process is dead, or know that it was closed. NoChecks is safer: a
	// mistake of gossip then ends nothing.
	Checks []string
}

const (
	// NoTTL is the TTL of a session that never ends by time. With NoChecks it
	// outlives its process with all that it holds: Node.Close, a crash and a
	// restart let it live. It ends with Session.Close, with Node.CloseSession and
	// Node.Leave, or with one of its checks, and the check that a session has by
	// default, gossip, becomes critical soon after its process is gone. Another process takes it over with Node.AttachSession. A
	// process that is cut off goes on believing in such a session for as long as
	// it is cut off.
	NoTTL time.Duration = -1
	// NoLockDelay lets others have what a session held at once.
	NoLockDelay time.Duration = -1
)

// NoChecks lets a session depend on no check. It is not to be changed.
var NoChecks = []string{}

// gossipName is the built-in check.
const gossipName = "gossip"

// Behavior is what becomes of the keys that a session has locked when it ends.
type Behavior int

const (
	// Release leaves them with their values, locked by nobody.
	Release Behavior = iota
	// Delete deletes them.
	Delete
)

// String returns "release" or "delete".
func (b Behavior) String() string {
	switch b {
	case Release:
		return "release"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("Behavior(%d)", int(b))
}

// withDefaults returns a copy in which every field is set, or all faults at once.
func (c *SessionConfig) withDefaults() (SessionConfig, error) {
	var d SessionConfig
	if c != nil {
		d = *c
	}
	setDefault(&d.TTL, 10*time.Second)
	setDefault(&d.LockDelay, 15*time.Second)
	if d.LockDelay == NoLockDelay {
		d.LockDelay = 0
	}
	if d.Checks == nil {
		d.Checks = []string{gossipName}
	}
	d.Checks = slices.Clone(d.Checks)
	return d, d.validate()
}

func (c *SessionConfig) validate() error {
	faults := []error{validLabel(c.Name)}
	if low, high := duration(machine.MinTTL), duration(machine.MaxTTL); c.TTL != NoTTL && (c.TTL < low || c.TTL > high) {
		faults = append(faults, fmt.Errorf("%w: TTL is %v; it has to be from %v to %v, or NoTTL", ErrInvalid, c.TTL, low, high))
	}
	if high := duration(machine.MaxLockDelay); c.LockDelay < 0 || c.LockDelay > high {
		faults = append(faults, fmt.Errorf("%w: LockDelay is %v; it has to be at most %v, or NoLockDelay", ErrInvalid, c.LockDelay, high))
	}
	if c.Behavior != Release && c.Behavior != Delete {
		faults = append(faults, fmt.Errorf("%w: Behavior is %d; it has to be Release or Delete", ErrInvalid, int(c.Behavior)))
	}
	if len(c.Checks) > machine.MaxSessionChecks {
		faults = append(faults, fmt.Errorf("%w: there are %d Checks of at most %d", ErrTooLarge, len(c.Checks), machine.MaxSessionChecks))
		return errors.Join(faults...)
	}
	for i, name := range c.Checks {
		if err := validName(name); err != nil {
			faults = append(faults, fmt.Errorf("check %q: %w", name, err))
		}
		if slices.Contains(c.Checks[:i], name) {
			faults = append(faults, fmt.Errorf("%w: Checks names %q twice", ErrInvalid, name))
		}
	}
	return errors.Join(faults...)
}

// validLabel is validName for names that may be empty.
func validLabel(name string) error {
	if name == "" {
		return nil
	}
	return validName(name)
}

// NewSession opens a session of this process. It blocks until the group has done
// so. When ctx ends first, a session that may have been opened is closed in the
// background. A nil cfg takes all defaults.
//
// Errors: ErrInvalid with every fault of cfg at once, or for a check that this
// member has not registered; ErrCheckCritical; ErrTooLarge; ErrClosed; and ctx's
// with ErrUnavailable or ErrUnknown.
func (n *Node) NewSession(ctx context.Context, cfg *SessionConfig) (*Session, error) {
	checked, err := cfg.withDefaults()
	if err != nil {
		return nil, fault("new session", checked.Name, err)
	}
	s, err := n.openSession(ctx, checked)
	return s, fault("new session", checked.Name, err)
}

func (n *Node) openSession(ctx context.Context, cfg SessionConfig) (*Session, error) {
	for {
		if err := n.usable(); err != nil {
			return nil, err
		}
		s, err := n.newOpening(cfg).run(ctx)
		switch {
		case errors.Is(err, errOpenAgain):
		case err == nil && errors.Is(s.alive(), ErrSessionExpired):
			// It took the group longer than the TTL.
		default:
			return s, err
		}
	}
}

// errOpenAgain: what came of an attempt to open a session cannot be relied upon,
// because of what became of this process meanwhile.
var errOpenAgain = errors.New("the session has to be opened again")

// opening is a session on its way through the group.
type opening struct {
	node     *Node
	id       wire.ID
	cfg      SessionConfig
	sent     instant
	restores uint64 // of the node, then
}

func (n *Node) newOpening(cfg SessionConfig) *opening {
	return &opening{node: n, id: wire.ID(newSessionID()), cfg: cfg, sent: n.clock.now(), restores: n.restores.Load()}
}

func newSessionID() (id SessionID) {
	rand.Read(id[:]) // never fails
	return id
}

func (o *opening) command() *wire.Command {
	open := &wire.OpenSession{
		Id: o.id[:], Name: o.cfg.Name, Ttl: int64(o.cfg.TTL), LockDelay: int64(o.cfg.LockDelay),
		Behavior: wire.Behavior(o.cfg.Behavior), Checks: o.cfg.Checks,
	}
	if o.cfg.TTL == NoTTL {
		open.Ttl = 0
	}
	return &wire.Command{Op: &wire.Command_OpenSession{OpenSession: open}}
}

// run opens the session for a caller, who may leave before it has been.
func (o *opening) run(ctx context.Context) (*Session, error) {
	var (
		mu      sync.Mutex
		left    bool
		session *Session
		refused error
	)
	_, err := o.node.send(ctx, o.command(), func(a answer) {
		mu.Lock()
		defer mu.Unlock()
		if !left {
			session, refused = o.answered(a)
		} else if a.err != nil || refusal(a.reply) == nil {
			o.discard()
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if session != nil || refused != nil {
		return session, refused
	}
	left = true
	return nil, err
}

// answered makes the session that the group has opened. It runs on the node's
// loop, so that no later news of the session is missed.
func (o *opening) answered(a answer) (*Session, error) {
	switch {
	case errors.Is(a.err, cluster.ErrUnregistered):
		o.discard()
		return nil, errOpenAgain
	case a.err == nil && a.unregistered():
		o.discard() // an earlier sending may have opened it
		return nil, errOpenAgain
	case a.fault() != nil:
		return nil, a.fault()
	case o.overtaken():
		o.discard()
		return nil, errOpenAgain
	}
	s := newSession(o.node, o.id, a.incarnation, o.cfg.TTL, o.sent)
	if !o.node.adopt(s) {
		o.discard() // or the farewell does
		s.end(ErrClosed)
		return nil, ErrClosed
	}
	return s, nil
}

// overtaken reports that a snapshot has come between: it may be that the session
// was opened and ended again in what was skipped, and that nobody will say so.
func (o *opening) overtaken() bool {
	return o.node.restores.Load() != o.restores
}

// discard closes a session that nobody here has seen. One without TTL would live
// for ever, so a group that has forgotten this process meanwhile is told again.
func (o *opening) discard() {
	o.node.pursue(closeCommand(o.id, true), func(a answer) {
		if o.cfg.TTL == NoTTL && a.forgotten() && o.node.usable() == nil {
			o.discard()
		}
	})
}
