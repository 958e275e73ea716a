package conclavehttp

import (
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
)

// The summary says how many voters are alive, and what to do when no more may fail.
func TestQuorum_Remedy(t *testing.T) {
	for _, c := range []struct {
		alive, dead   int
		redundancy    int
		class, remedy string
	}{
		{3, 0, 1, "good", ""},
		{2, 1, 0, "warn", "start dead-0 again"},
		{1, 2, -1, "bad", "start dead-0, dead-1 again"},
		{1, 0, 0, "warn", "add members"},
		{2, 0, 0, "warn", "add members"},
		{3, 0, 0, "warn", "stops the group."},
		{1, 8, -4, "bad", "dead-4 and 3 more again"},
		{3, 0, -1, "bad", "No command commits."},
	} {
		s := &snapshot{members: memberNames{}}
		add := func(name string, role conclave.Role, alive bool) {
			m := conclave.Member{ID: conclave.MemberID(len(s.Status.Members) + 1), Name: name, Role: role, Alive: alive}
			s.Status.Members = append(s.Status.Members, m)
			s.members[m.ID] = m
		}
		for range c.alive {
			add("alive", conclave.Voter, true)
		}
		for i := range c.dead {
			add("dead-"+string(rune('0'+i)), conclave.Voter, false)
		}
		add("standby", conclave.Standby, false)
		s.Status.Redundancy = c.redundancy
		q := s.Quorum()
		if q.Alive != c.alive || q.Voters != c.alive+c.dead || q.Class != c.class || !strings.Contains(q.Remedy(), c.remedy) || (c.remedy == "") != (q.Remedy() == "") {
			t.Errorf("%+v: %+v, %q", c, q, q.Remedy())
		}
	}
}
