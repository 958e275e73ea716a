package sim

import (
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// resourceKind is a kind of resource that one session can hold.
type resourceKind struct {
	name    string
	acquire func(s *simSession, wait bool) *wire.Command
	owner   func(*machine.Machine) wire.ID // zero: not held
	waits   bool                           // a caller can queue for it
}

func resourceKinds() []resourceKind {
	return []resourceKind{
		{
			name: "lock", waits: true,
			acquire: func(s *simSession, wait bool) *wire.Command { return lockCommand("x", s, 1, wait) },
			owner: func(m *machine.Machine) wire.ID {
				v := lockOf(m, "x")
				return v.Session
			},
		},
		{
			name: "election", waits: true,
			acquire: func(s *simSession, wait bool) *wire.Command {
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
			acquire: func(s *simSession, wait bool) *wire.Command { return acquireCommand(semaphores[0], s, 2, 2, wait) },
			owner: func(m *machine.Machine) wire.ID {
				if v, _ := semaphoreOf(m, semaphores[0]); len(v.Holders) > 0 {
					return v.Holders[0].Session
				}
				return wire.ID{}
			},
		},
		{
			name: "key", // the session's end deletes it
			acquire: func(s *simSession, _ bool) *wire.Command {
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
