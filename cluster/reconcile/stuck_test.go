package reconcile

import (
	"fmt"
	"testing"
)

// A leader that was removed goes on while it has no successor.
func TestDecide_RemovedLeaderWithoutSuccessor(t *testing.T) {
	for name, test := range map[string]struct {
		situation
		want string
	}{
		// The only standby was lost after the removal was recorded; another member was admitted.
		"the only voter is removed, a member was admitted": {situation{voters: ids(1), admitted: ids(3), removed: ids(1), want: 3}, "[add 0000000000000003]"},
		"and its first standby is silent":                  {situation{voters: ids(1), standbys: ids(2), admitted: ids(3), removed: ids(1), silent: ids(2), want: 3}, "[add 0000000000000003]"},
		// Two of three leave at the same time, and the third is dead.
		"the voter that stays is silent, a standby is there": {situation{voters: ids(1, 2, 3), standbys: ids(4), removed: ids(1, 2), silent: ids(3), want: 3}, "[promote 0000000000000004 demote 0000000000000002]"},
		"and another was admitted":                           {situation{voters: ids(1, 2, 3), admitted: ids(4), removed: ids(1, 2), silent: ids(3), want: 3}, "[add 0000000000000004]"},
	} {
		t.Run(name, func(t *testing.T) {
			if plan := Decide(test.facts()); fmt.Sprint(plan.Changes) != test.want {
				t.Errorf("%s (transfer %t: %s), want %s", fmt.Sprint(plan.Changes), plan.Transfer, plan.Reason, test.want)
			}
		})
	}
}

// A leader that a joint configuration demotes does not leave it itself: it would step down
// as the only member that knows of the commit, with a log that may be longer than that of
// the voters that remain, which need its vote if another of the old ones is lost.
func TestDecide_JointDemotesLeader(t *testing.T) {
	f := situation{voters: ids(3), standbys: ids(4), want: 1, leader: 2}.facts()
	f.Conf.VotersOutgoing, f.Conf.LearnersNext = ids(1, 2, 3), ids(1, 2)
	if plan := Decide(f); plan.Leave || !plan.Transfer {
		t.Errorf("%+v", plan)
	}
	f.Self = 3
	if plan := Decide(f); !plan.Leave || plan.Transfer {
		t.Errorf("%+v", plan)
	}
}
