package conclave

import (
	"context"
	"fmt"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
)

// LockInfo is a lock as the group has it. Of a lock that is free, and that
// nobody waits for, only the name is set.
type LockInfo struct {
	Name    string
	Held    bool
	Session SessionID // of the holder, like Node, Holds and Fence; zero if nobody holds it
	Node    MemberID
	Holds   int
	Fence   Fence
	Waiters int
	Delay   time.Duration // lock-delay left
}

// Info says who holds the lock, from anywhere in the group. It is linearizable
// and blocks until a majority has confirmed that this node is up to date.
// Between Info and what is done about it, everything may change. Errors:
// ErrUnavailable with ctx's, ErrTooLarge with too many reads under way, ErrInvalid
// for the name, ErrClosed.
func (l *FencedLock) Info(ctx context.Context) (LockInfo, error) {
	info := LockInfo{Name: l.name}
	err := l.bad
	if err == nil {
		err = l.node.read(ctx, func(m *machine.Machine) {
			if v, ok := m.Lock(l.name); ok {
				info = lockInfo(v)
			}
		})
	}
	if err != nil {
		return LockInfo{}, fault("info", l.name, err)
	}
	return info, nil
}

func lockInfo(v machine.LockView) LockInfo {
	return LockInfo{
		Name: v.Name, Held: v.Held, Session: SessionID(v.Session), Node: MemberID(v.Member),
		Holds: int(v.Holds), Fence: Fence(v.Fence), Waiters: v.Waiters, Delay: duration(v.Delay),
	}
}

// maxLocks bounds what Locks returns.
const maxLocks = 100_000

// Locks lists the locks whose names begin with prefix and that are held, queued
// for or delayed, by name. It is linearizable, blocks like Info and has
// its errors. ErrTooLarge also when there are more than 100,000; ask with a longer
// prefix.
func (n *Node) Locks(ctx context.Context, prefix string) ([]LockInfo, error) {
	var list []LockInfo
	err := n.read(ctx, func(m *machine.Machine) {
		for _, v := range m.Locks(prefix, maxLocks+1) {
			list = append(list, lockInfo(v))
		}
	})
	if err == nil && len(list) > maxLocks {
		err = fmt.Errorf("%w: more than %d locks; ask with a longer prefix", ErrTooLarge, maxLocks)
	}
	if err != nil {
		return nil, fault("list locks", prefix, err)
	}
	return list, nil
}
