package conclave

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// Check is a handle to a check of this member, after Consul's: a condition that the
// application determines and reports to the group, so that sessions can depend on it.
// When a check becomes critical or is deregistered, all sessions of this member that
// name it end at once, and what they hold is released after their lock-delay. A holder
// that is partitioned while a check with a TTL is not refreshed notices by its own clock,
// before anything is granted to another owner; after Fail and Deregister it learns of
// the end at the session's deadline at the latest. See [Session].
//
// A check belongs to the member, in one group, and outlives the process. All methods block until the
// group has agreed, and are safe for concurrent use. Their errors: ErrInvalid if the
// check was deregistered, ErrBusy with too many calls under way, ErrClosed, and ctx's
// with ErrUnavailable or ErrUnknown.
type Check struct {
	group *Group
	name  string
}

// CheckState is the state of a check.
type CheckState int

const (
	// CheckPassing means that sessions may depend on the check.
	CheckPassing CheckState = iota + 1
	// CheckWarning means that something is wrong, but no session should end.
	CheckWarning
	// CheckCritical means that no session may depend on the check.
	CheckCritical
)

// String returns "passing", "warning" or "critical".
func (s CheckState) String() string {
	switch s {
	case CheckPassing:
		return "passing"
	case CheckWarning:
		return "warning"
	case CheckCritical:
		return "critical"
	}
	return fmt.Sprintf("CheckState(%d)", int(s))
}

// RegisterCheck registers a check of this member, in the state passing. Its name is 1
// to 512 bytes of UTF-8 without NUL, and neither "gossip" nor "process", which are built in. With a ttl of
// 1 s to 24 h it becomes critical if neither Pass nor Warn was called for that long;
// with 0 it keeps its state. A check of that name, perhaps of an earlier process of
// this member, continues with the new ttl, as passing.
//
// Sessions of the group can depend on it; each group has checks of its own.
//
// It blocks until the group has agreed. Errors: ErrInvalid and ErrTooLarge for the name
// or the ttl; ErrInvalid from a [Client]'s group; ErrBusy with more than 256 checks; ErrClosed; and ctx's with
// ErrUnavailable or ErrUnknown.
func (g *Group) RegisterCheck(ctx context.Context, name string, ttl time.Duration) (*Check, error) {
	return g.registerCheck(ctx, name, ttl, false)
}

// RegisterClientCheck is RegisterCheck on behalf of a client of this program, as package
// consulapi calls it: such checks have a limit of their own, also of 256, so that clients
// cannot use up that of the program. Both kinds share their names. A check that is
// registered already remains of its kind.
//
// Until every member of the group runs a build that knows the two kinds, both share one limit.
func (g *Group) RegisterClientCheck(ctx context.Context, name string, ttl time.Duration) (*Check, error) {
	if err := g.raiseLevel(ctx, wire.LevelBounds); err != nil && !errors.Is(err, ErrUpgradeRequired) {
		return nil, fault("register check", name, err)
	}
	return g.registerCheck(ctx, name, ttl, true)
}

func (g *Group) registerCheck(ctx context.Context, name string, ttl time.Duration, forClient bool) (*Check, error) {
	c := &Check{group: g, name: name}
	err := validCheck(name, ttl)
	if err == nil && !g.isNode {
		err = errNoMember
	}
	if err == nil {
		err = g.client.SetCheck(ctx, &wire.SetCheck{
			Name: name, Register: true, Ttl: int64(ttl), State: wire.CheckState_PASSING, ForClient: forClient,
		})
	}
	if err != nil {
		return nil, fault("register check", name, err)
	}
	return c, nil
}

func validCheck(name string, ttl time.Duration) error {
	low, high := duration(machine.MinTTL), duration(machine.MaxTTL)
	switch {
	case name == gossipCheck, name == ProcessCheck:
		return fmt.Errorf("%w name: %q is built in: choose another name", ErrInvalid, name)
	case ttl != 0 && (ttl < low || ttl > high):
		return fmt.Errorf("%w ttl: want %v to %v, or 0 for none, got %v", ErrInvalid, low, high, ttl)
	}
	return validName(name)
}

// Pass sets the check to passing and restarts its TTL.
func (c *Check) Pass(ctx context.Context) error {
	return fault("pass check", c.name, c.set(ctx, wire.CheckState_PASSING))
}

// Warn sets the check to warning and restarts its TTL. No session ends.
func (c *Check) Warn(ctx context.Context) error {
	return fault("warn check", c.name, c.set(ctx, wire.CheckState_WARNING))
}

// Fail sets the check to critical: the sessions that depend on it end at once. It stays
// critical until Pass or Warn is called.
func (c *Check) Fail(ctx context.Context) error {
	return fault("fail check", c.name, c.set(ctx, wire.CheckState_CRITICAL))
}

// Deregister removes the check from the group. The sessions that depend on it end at
// once.
func (c *Check) Deregister(ctx context.Context) error {
	return fault("deregister check", c.name, c.group.client.DropCheck(ctx, c.name))
}

func (c *Check) set(ctx context.Context, state wire.CheckState) error {
	return c.group.client.SetCheck(ctx, &wire.SetCheck{Name: c.name, State: state})
}

// CheckInfo describes a check.
type CheckInfo struct {
	Node      MemberID // the member that it belongs to
	Name      string
	State     CheckState
	TTL       time.Duration // 0: none
	Remaining time.Duration // until it becomes critical, unless it is refreshed; 0 without TTL
}

// Checks lists the checks of all members, the built-in checks "gossip" and "process" included, by
// member and name. It reads pages, as [Group.Locks] does.
func (g *Group) Checks(ctx context.Context, opts ...ListOption[CheckInfo]) iter.Seq2[CheckInfo, error] {
	after := listingOf(opts).after
	if err := validPrefixes(after.Name); err != nil {
		return refused[CheckInfo]("list checks", "", err)
	}
	first := machine.CheckCursor{Member: uint64(after.Node), Name: after.Name}
	return pages(ctx, g, "list checks", "", listing[machine.CheckCursor]{after: first}, func(after machine.CheckCursor) machine.Query {
		return machine.ChecksQuery{After: after, Limit: pageSize}
	}, machine.CheckView.Cursor, checkInfo)
}

func checkInfo(v machine.CheckView) CheckInfo {
	info := CheckInfo{
		Node: MemberID(v.Member), Name: v.Name, State: CheckPassing,
		TTL: duration(v.TTL), Remaining: duration(v.Remaining),
	}
	switch v.State {
	case wire.CheckState_WARNING:
		info.State = CheckWarning
	case wire.CheckState_CRITICAL:
		info.State = CheckCritical
	}
	return info
}
