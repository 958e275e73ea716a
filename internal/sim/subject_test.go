package sim

import (
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// subject is what a session can hold, alone.
type subject struct {
	name  string
	take  func(s *simSession, wait bool) *wire.Command
	owner func(*machine.Machine) wire.ID // zero: nobody
	waits bool                           // one can queue for it
}

func subjects() []subject {
	return []subject{
		{
			name: "lock", waits: true,
			take: func(s *simSession, wait bool) *wire.Command { return lockCommand("x", s, 1, wait) },
			owner: func(m *machine.Machine) wire.ID {
				v := lockOf(m, "x")
				return v.Session
			},
		},
		{
			name: "election", waits: true,
			take: func(s *simSession, wait bool) *wire.Command {
				return campaignCommand(elections[0], s, 1, wait, "value")
			},
			owner: func(m *machine.Machine) wire.ID {
				if l := leaderOf(m, elections[0]); l != nil {
					return l.Session
				}
				return wire.ID{}
			},
		},
		{
			name: "permit", waits: true,
			take: func(s *simSession, wait bool) *wire.Command { return acquireCommand(semaphores[0], s, 2, 2, wait) },
			owner: func(m *machine.Machine) wire.ID {
				if v, _ := semaphoreOf(m, semaphores[0]); len(v.Holders) > 0 {
					return v.Holders[0].Session
				}
				return wire.ID{}
			},
		},
		{
			name: "key", // which the session's end deletes
			take: func(s *simSession, _ bool) *wire.Command {
				return writeCommand(&wire.KeyOp{Kind: wire.KeyOp_ACQUIRE, Key: "x", Session: s.id[:]})
			},
			owner: func(m *machine.Machine) wire.ID {
				if e := keyOf(m, "x"); e != nil {
					return e.Session
				}
				return wire.ID{}
			},
		},
	}
}

func lockCommand(name string, s *simSession, handle uint64, wait bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{Name: name, Session: s.id[:], Handle: handle, Wait: wait}}}
}

func unlockCommand(name string, s *simSession, handle, fence uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_Unlock{Unlock: &wire.Unlock{Name: name, Session: s.id[:], Handle: handle, Fence: fence}}}
}

func campaignCommand(name string, s *simSession, handle uint64, wait bool, value string) *wire.Command {
	return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
		Name: name, Session: s.id[:], Handle: handle, Wait: wait, Election: true, Value: []byte(value),
	}}}
}

func acquireCommand(name string, s *simSession, limit, permits uint32, wait bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_Acquire{Acquire: &wire.Acquire{
		Name: name, Session: s.id[:], Limit: limit, Permits: permits, Wait: wait,
	}}}
}

func releaseCommand(name string, s *simSession, fence uint64) *wire.Command {
	return &wire.Command{Op: &wire.Command_Release{Release: &wire.Release{Name: name, Session: s.id[:], Fence: fence}}}
}

func writeCommand(ops ...*wire.KeyOp) *wire.Command {
	return &wire.Command{Op: &wire.Command_Write{Write: &wire.Write{Ops: ops}}}
}

func closeCommand(s *simSession, graceful bool) *wire.Command {
	return &wire.Command{Op: &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: s.id[:], Graceful: graceful}}}
}
