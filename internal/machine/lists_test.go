package machine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// lists is what lists of members, sessions and checks show, without what only time changes.
func lists(m *Machine) string {
	var b strings.Builder
	m.byCreation.Ascend(func(s *session) bool {
		v := m.viewSession(s)
		v.Remaining, v.Incarnation = 0, wire.ID{}
		fmt.Fprintln(&b, v)
		return true
	})
	m.checks.Ascend(func(c *check) bool {
		v := m.viewCheck(c)
		v.Remaining = 0
		fmt.Fprintln(&b, v)
		return true
	})
	fmt.Fprintln(&b, m.Members(), m.Registered())
	return b.String()
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
