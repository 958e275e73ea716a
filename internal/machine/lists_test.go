package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// listed is what lists of members, sessions and checks show, without what only time changes.
type listed struct {
	sessions   []SessionView
	checks     []CheckView
	members    any
	registered any
}

func lists(m *Machine) (l listed) {
	m.byCreation.Ascend(func(s *session) bool {
		v := m.viewSession(s)
		v.Remaining, v.Incarnation = 0, wire.ID{}
		l.sessions = append(l.sessions, v)
		return true
	})
	m.checks.Ascend(func(c *check) bool {
		v := m.viewCheck(c)
		v.Remaining = 0
		l.checks = append(l.checks, v)
		return true
	})
	l.members, l.registered = m.Members(), m.Registered()
	return l
}

// What happens all the time changes no list, so that a caller that waits for one is not woken by it.
func TestListed_NotByUse(t *testing.T) {
	d := newDriver(t)
	s := wire.ID{1}
	for _, step := range []struct {
		name    string
		command *wire.Command
		want    bool
	}{
		{"a session is opened", openCommand(s, 0, 0), true},
		{"a lock is acquired", lockCommand("l", s, 1), false},
		{"a check is registered", checkCommand(wire.CheckState_PASSING, true), true},
		{"the check is refreshed", checkCommand(wire.CheckState_PASSING, false), false},
		{"the check is registered again", checkCommand(wire.CheckState_PASSING, true), false},
		{"the check fails", checkCommand(wire.CheckState_CRITICAL, false), true},
		{"the session is closed", closeCommand(s), true},
	} {
		if got := d.execute(step.command).Listed; got != step.want {
			t.Errorf("%s: listed %v, want %v", step.name, got, step.want)
		}
	}
}

func checkCommand(state wire.CheckState, register bool) *wire.Command {
	c := &wire.SetCheck{Name: "check", State: state, Register: register}
	if register {
		c.Ttl = MaxTTL
	}
	return &wire.Command{Op: &wire.Command_SetCheck{SetCheck: c}}
}
