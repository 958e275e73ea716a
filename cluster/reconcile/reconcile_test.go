package reconcile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/fact"
)

// situation describes Facts: each member by its role and state.
type situation struct {
	voters, standbys, admitted []uint64
	removed, silent, lagging   []uint64
	unregistered               []uint64 // founders
	want                       uint32
	leader                     uint64
}

const replaceAfter = 100

func (s situation) facts() *Facts {
	f := &Facts{
		Self: max(s.leader, 1), Removed: s.removed, Now: 2 * replaceAfter,
		Conf:         &raftpb.ConfState{Voters: s.voters, Learners: s.standbys},
		Config:       fact.GroupConfig{Voters: s.want, ReplaceAfter: replaceAfter},
		Active:       func(id uint64) bool { return !slices.Contains(s.silent, id) },
		Current:      func(id uint64) bool { return !slices.Contains(s.lagging, id) },
		KnowsRemoval: func(uint64) bool { return true },
	}
	for _, id := range slices.Sorted(slices.Values(slices.Concat(s.voters, s.standbys, s.admitted))) {
		if !slices.Contains(s.removed, id) && !slices.Contains(s.unregistered, id) {
			f.Members = append(f.Members, fact.MemberRecord{ID: id, Registered: true, Silent: slices.Contains(s.silent, id)})
		}
	}
	return f
}

func ids(list ...uint64) []uint64 { return list }

// What the reconciler does in each situation.
func TestDecide(t *testing.T) {
	for name, test := range map[string]struct {
		situation
		want string
	}{
		"nothing to do":                             {situation{voters: ids(1, 2, 3), standbys: ids(4), want: 3}, "[]"},
		"a member was admitted":                     {situation{voters: ids(1), admitted: ids(2), want: 3}, "[add 0000000000000002]"},
		"two members: one votes":                    {situation{voters: ids(1), standbys: ids(2), want: 3}, "[]"},
		"three members: two are promoted at once":   {situation{voters: ids(1), standbys: ids(2, 3), want: 3}, "[promote 0000000000000002 promote 0000000000000003]"},
		"three members, one voter wanted":           {situation{voters: ids(1), standbys: ids(2, 3), want: 1}, "[]"},
		"two voters and a standby":                  {situation{voters: ids(1, 2), standbys: ids(3), want: 3}, "[promote 0000000000000003]"},
		"a standby that lags":                       {situation{voters: ids(1, 2), standbys: ids(3), lagging: ids(3), want: 3}, "[]"},
		"a standby that is silent":                  {situation{voters: ids(1, 2), standbys: ids(3), silent: ids(3), want: 3}, "[]"},
		"a silent voter, no standby":                {situation{voters: ids(1, 2, 3), silent: ids(2), want: 3}, "[]"},
		"a silent voter, a standby":                 {situation{voters: ids(1, 2, 3), standbys: ids(4, 5), silent: ids(2), want: 3}, "[promote 0000000000000004 demote 0000000000000002]"},
		"a founder that never registered":           {situation{voters: ids(1, 2, 3), standbys: ids(4), unregistered: ids(2), silent: ids(2), want: 3}, "[promote 0000000000000004 demote 0000000000000002]"},
		"a founder that is about to register":       {situation{voters: ids(1, 2, 3), standbys: ids(4), unregistered: ids(2), want: 3}, "[]"},
		"two silent voters of three":                {situation{voters: ids(1, 2, 3), standbys: ids(4), silent: ids(2, 3), want: 3}, "[promote 0000000000000004 demote 0000000000000002]"},
		"three silent voters of five":               {situation{voters: ids(1, 2, 3, 4, 5), standbys: ids(6), silent: ids(2, 3, 4), want: 5}, "[promote 0000000000000006 demote 0000000000000002]"},
		"three silent voters of five, the other is": {situation{voters: ids(1, 2, 3, 4, 5), standbys: ids(6), silent: ids(2, 3, 4, 6), want: 5}, "[]"},
		"a removed voter, a standby":                {situation{voters: ids(1, 2, 3), standbys: ids(4), removed: ids(3), want: 3}, "[promote 0000000000000004 demote 0000000000000003]"},
		"a removed voter, no standby":               {situation{voters: ids(1, 2, 3), removed: ids(3), want: 3}, "[demote 0000000000000003]"},
		"a removed voter, no majority without":      {situation{voters: ids(1, 2, 3, 4, 5), removed: ids(3), silent: ids(4, 5), want: 5}, "[]"},
		"a removed and a silent voter of three":     {situation{voters: ids(1, 2, 3), removed: ids(3), silent: ids(2), want: 3}, "[]"},
		"a removed standby":                         {situation{voters: ids(1), standbys: ids(2), removed: ids(2), want: 3}, "[remove 0000000000000002]"},
		"the leader is removed":                     {situation{voters: ids(1, 2, 3), removed: ids(1), want: 3}, "transfer"},
		"the only voter is removed, a standby":      {situation{voters: ids(1), standbys: ids(2), removed: ids(1), want: 3}, "[promote 0000000000000002]"},
		"too many voters":                           {situation{voters: ids(1, 2, 3, 4, 5), want: 3}, "[demote 0000000000000005 demote 0000000000000004]"},
		"too many voters, the last one leads":       {situation{voters: ids(1, 2, 3, 4, 5), want: 3, leader: 5}, "[demote 0000000000000004 demote 0000000000000003]"},
		"too many voters, one is silent":            {situation{voters: ids(1, 2, 3, 4), silent: ids(2), want: 3}, "[demote 0000000000000002]"},
		"two voters, one wanted":                    {situation{voters: ids(1, 2), want: 1}, "[demote 0000000000000002]"},
		"the settings are not there yet":            {situation{voters: ids(1, 2, 3, 4, 5), standbys: ids(6)}, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(test.facts())
			got := fmt.Sprint(plan.Changes)
			if plan.Transfer {
				got = "transfer"
			}
			if got != test.want {
				t.Errorf("%s (%s), want %s", got, plan.Reason, test.want)
			}
			if again := Decide(test.facts()); fmt.Sprint(again) != fmt.Sprint(plan) {
				t.Errorf("%v from the same facts", again)
			}
		})
	}
}

// A removed standby stays in the default group's configuration while another group may need its vote.
func TestDecide_RemovedFromOtherGroupsFirst(t *testing.T) {
	f := situation{voters: ids(1), standbys: ids(2), removed: ids(2), want: 3}.facts()
	f.MayRemove = func(uint64) bool { return false }
	if plan := Decide(f); len(plan.Changes) > 0 || plan.Reason == "" {
		t.Errorf("%v", plan)
	}
	f.MayRemove = func(id uint64) bool { return id == 2 }
	if plan := Decide(f); fmt.Sprint(plan.Changes) != "[remove 0000000000000002]" {
		t.Errorf("%v", plan)
	}
}

// A further group has those vote that vote in the default group, whatever its own settings and failure detector say.
func TestDecide_FollowsVoters(t *testing.T) {
	for name, test := range map[string]struct {
		situation
		follow []uint64
		want   string
	}{
		"alike":                           {situation{voters: ids(1, 2, 3), standbys: ids(4), silent: ids(2), want: 5}, ids(1, 2, 3), "[]"},
		"another one":                     {situation{voters: ids(1, 2, 3), standbys: ids(4), want: 3}, ids(1, 2, 4), "[promote 0000000000000004 demote 0000000000000003]"},
		"one more":                        {situation{voters: ids(1), standbys: ids(2, 3), want: 3}, ids(1, 3), "[promote 0000000000000003]"},
		"one less":                        {situation{voters: ids(1, 2, 3), want: 3}, ids(1, 2), "[demote 0000000000000003]"},
		"the leader votes no more":        {situation{voters: ids(1, 2, 3), standbys: ids(4), want: 3, leader: 3}, ids(1, 2, 4), "[promote 0000000000000004]"},
		"only the leader votes no more":   {situation{voters: ids(1, 2, 3), want: 3, leader: 3}, ids(1, 2), "transfer"},
		"one that is no member any more":  {situation{voters: ids(1, 2, 3), removed: ids(3), want: 3}, ids(1, 2), "[demote 0000000000000003]"},
		"a new one is not admitted here":  {situation{voters: ids(1, 2, 3), admitted: ids(4), want: 3}, ids(1, 2, 4), "[add 0000000000000004]"},
		"the new one does not answer yet": {situation{voters: ids(1, 2, 3), standbys: ids(4), silent: ids(4), want: 3}, ids(1, 2, 4), "[]"},
	} {
		f := test.facts()
		f.Following = &fact.Following{Group: 1, Voters: test.follow}
		plan := Decide(f)
		got := fmt.Sprint(plan.Changes)
		if plan.Transfer {
			got = "transfer"
		}
		if got != test.want {
			t.Errorf("%s: %s (%s), want %s", name, got, plan.Reason, test.want)
		}
	}
}

// A silent voter is replaced when ReplaceAfter has passed.
func TestDecide_ReplaceAfter(t *testing.T) {
	f := situation{voters: ids(1, 2, 3), standbys: ids(4), silent: ids(2), want: 3}.facts()
	f.Members[1].Since = f.Now - replaceAfter + 1
	if plan := Decide(f); len(plan.Changes) > 0 || plan.Reason == "" {
		t.Errorf("%v", plan)
	}
	f.Now++
	if plan := Decide(f); len(plan.Changes) != 2 {
		t.Errorf("%v", plan)
	}
	f.Config.ReplaceAfter = 0
	if plan := Decide(f); len(plan.Changes) > 0 {
		t.Errorf("%v where ReplaceAfter is never", plan)
	}
}

// From any situation the reconciler reaches one in which nothing is left to do, by changes
// after each of which a majority of the voters is active, and which has the wanted voters as
// far as there are members for them. A joint change is left before the next one.
func TestDecide_Converges(t *testing.T) {
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := situation{want: uint32(1 + 2*r.IntN(4))}
		for id := uint64(1); id <= 9; id++ {
			switch role := r.IntN(4); {
			case id == 1 || role == 0:
				s.voters = append(s.voters, id)
			case role == 1:
				s.standbys = append(s.standbys, id)
			case role == 2:
				s.admitted = append(s.admitted, id)
			}
			if id > 1 && r.IntN(5) == 0 {
				s.removed = append(s.removed, id)
			}
			if id > 1 && r.IntN(5) == 0 {
				s.silent = append(s.silent, id)
			}
		}
		for steps := 0; ; steps++ {
			if steps > 50 {
				t.Fatalf("seed %d: no end: %+v", seed, s)
			}
			plan := Decide(s.facts())
			if len(plan.Changes) == 0 {
				break
			}
			s.apply(plan)
			active := 0
			for _, id := range s.voters {
				if !slices.Contains(s.silent, id) {
					active++
				}
			}
			if active <= len(s.voters)/2 && slices.ContainsFunc(plan.Changes, func(c Change) bool { return c.Kind == Promote || c.Kind == Demote }) {
				t.Fatalf("seed %d: %v leaves %+v", seed, plan, s)
			}
		}
		s.check(t, seed)
	}
}

func (s *situation) apply(plan Plan) {
	for _, c := range plan.Changes {
		is := func(id uint64) bool { return id == c.Member }
		s.voters, s.standbys = slices.DeleteFunc(s.voters, is), slices.DeleteFunc(s.standbys, is)
		s.admitted = slices.DeleteFunc(s.admitted, is)
		switch c.Kind {
		case Promote:
			s.voters = append(s.voters, c.Member)
		case Demote, AddStandby:
			s.standbys = append(s.standbys, c.Member)
		}
	}
	slices.Sort(s.voters)
	slices.Sort(s.standbys)
}

// check checks a situation in which nothing is left to do.
func (s *situation) check(t *testing.T, seed uint64) {
	t.Helper()
	live := func(list []uint64) (n int) {
		for _, id := range list {
			if !slices.Contains(s.silent, id) && !slices.Contains(s.removed, id) {
				n++
			}
		}
		return n
	}
	if live(s.voters) <= len(s.voters)/2 {
		return // there is no quorum that could do anything
	}
	standbys := live(s.standbys)
	silent := slices.ContainsFunc(s.voters, func(id uint64) bool { return slices.Contains(s.silent, id) })
	switch {
	case len(s.voters) > int(s.want):
		t.Errorf("seed %d: %d voters of %d in %+v", seed, len(s.voters), s.want, s)
	case len(s.voters) < int(s.want) && standbys >= 2, len(s.voters)%2 == 0 && standbys >= 1:
		t.Errorf("seed %d: a standby could vote in %+v", seed, s)
	case silent && standbys > 0:
		t.Errorf("seed %d: a standby could replace a silent voter in %+v", seed, s)
	}
	for _, id := range s.removed {
		if slices.Contains(s.standbys, id) {
			t.Errorf("seed %d: removed %d is still there in %+v", seed, id, s)
		}
		if slices.Contains(s.voters, id) && 2*live(s.voters) > len(s.voters)+1 {
			t.Errorf("seed %d: removed %d still votes in %+v", seed, id, s)
		}
	}
}
