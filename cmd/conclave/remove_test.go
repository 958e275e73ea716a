//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
)

// A voter that is alive is removed with --force alone, and before that the command shows what would remain.
func TestRemove_VoterAlive(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	all := d.found("--memory")
	d.healthy(all[0], 3, 0)
	r := d.result(all[0], "remove", "ben")
	want(t, r, exitUsage, "ben ("+all[1].id.String()+" at "+all[1].addr+") is a voter, and alive: 2 voters would remain; quorum: yes, and no further voter may fail; --force does it")
	if r.out != "" {
		t.Errorf("prints %s", r.out)
	}
	d.healthy(all[0], 3, 0)
	removed := decoded[removalView](t, d.ask(all[0], "remove", "ben", "--force", "-o", "json"))
	if want := (removalView{Removed: all[1].id, Role: "voter", Alive: true, Voters: 2}); removed != want {
		t.Errorf("%+v, want %+v", removed, want)
	}
	if code := all[1].wait(); code != exitRemoved {
		t.Errorf("the removed member: exit code %d, want %d", code, exitRemoved)
	}
	d.await(all[0], "two voters", func(s statusView) bool { return len(s.Members) == 2 && s.Redundancy == removed.Redundancy })
}

func TestRemove_Foreseen(t *testing.T) {
	member := func(id conclave.MemberID, state string) conclave.Member {
		m := conclave.Member{ID: id, Role: conclave.Voter, Alive: strings.HasSuffix(state, "alive")}
		if strings.HasPrefix(state, "standby") {
			m.Role = conclave.Standby
		}
		return m
	}
	for _, c := range []struct {
		members            string // of which the first is removed
		voters, redundancy int
	}{
		{"voter alive, voter alive, voter alive", 2, 0},
		{"voter dead, voter alive, voter alive", 2, 0},
		{"voter alive, voter alive, voter dead", 2, -1},
		{"voter alive, voter alive, voter alive, standby alive", 3, 1},
		{"voter dead, voter alive, voter alive, standby dead", 2, 0},
		{"standby alive, voter alive, voter alive, voter alive", 3, 1},
		{"voter alive, voter alive, voter alive, voter alive, voter alive", 4, 1},
		{"voter alive", 0, -1},
	} {
		var s conclave.Status
		for i, state := range strings.Split(c.members, ", ") {
			s.Members = append(s.Members, member(conclave.MemberID(i+1), state))
		}
		if r := removalOf(s, s.Members[0]); r.Voters != c.voters || r.Redundancy != c.redundancy {
			t.Errorf("%s: %d voters and redundancy %d, want %d and %d", c.members, r.Voters, r.Redundancy, c.voters, c.redundancy)
		}
	}
}
