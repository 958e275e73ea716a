package spread

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// view returns a view of three voters in which the groups have these leaders, that of the default group first.
func view(leaders ...uint64) View {
	v := View{Voters: voters(0, 0, 0), Same: true}
	for i, id := range leaders {
		v.Leaders = append(v.Leaders, Leader{Group: uint32(i), Member: id, Term: 5})
	}
	return v
}

// voters returns voters from 1 on with these priorities, which reach each other.
func voters(priorities ...int32) (list []Voter) {
	var all []uint64
	for i := range priorities {
		all = append(all, uint64(i+1))
	}
	for i, p := range priorities {
		list = append(list, Voter{all[i], p, true, all, [16]byte{byte(i)}})
	}
	return list
}

// with returns the view with these priorities of its voters, some of which are down.
func (v View) with(priorities []int32, down ...uint64) View {
	v.Voters = voters(priorities...)
	for _, id := range down {
		v.Voters[id-1] = Voter{ID: id}
	}
	return v
}

// cut returns the view without the connection of two voters, neither of which has the view.
func (v View) cut(a, b uint64) View {
	v.Voters = slices.Clone(v.Voters)
	for from, to := range map[uint64]uint64{a: b, b: a} {
		v.Voters[from-1].Reaches = slices.DeleteFunc(slices.Clone(v.Voters[from-1].Reaches), func(id uint64) bool { return id == to })
	}
	return v
}

func TestUneven(t *testing.T) {
	none, low := []int32{0, 0, 0}, []int32{0, 0, -1} // the third should not lead
	differ := view(1, 2, 1)
	differ.Same = false
	silent := view(1, 2, 1)
	silent.Voters[2].Reaches = nil
	for name, test := range map[string]struct {
		view   View
		self   uint64
		groups []uint32
		to     uint64
	}{
		"even":                              {view: view(1, 2, 3), self: 1},
		"one more":                          {view: view(1, 2, 3, 1), self: 1},
		"two more":                          {view: view(1, 2, 1), self: 1, groups: []uint32{2}, to: 3},
		"another member's":                  {view: view(1, 2, 1), self: 2},
		"of a member that leads none":       {view: view(1, 2, 1), self: 3},
		"of a standby":                      {view: view(1, 2, 1), self: 4},
		"the default group stays":           {view: view(3, 3, 3), self: 3, groups: []uint32{1, 2}, to: 1},
		"two with the most":                 {view: view(3, 2, 3, 2), self: 2, groups: []uint32{1, 3}, to: 1},
		"two with the most, the higher ID":  {view: view(3, 2, 3, 2), self: 3},
		"to the second":                     {view: view(1, 1, 3, 1), self: 1, groups: []uint32{1, 3}, to: 2},
		"only the default group":            {view: view(1), self: 1},
		"a group without a leader":          {view: view(1, 0, 1, 1), self: 1},
		"the default group without one":     {view: view(0, 1, 1, 1), self: 1},
		"a group led by a member, no voter": {view: view(1, 1, 1, 4), self: 1},
		"voters differ":                     {view: differ, self: 1},
		"nothing known":                     {self: 1},
		"one voter":                         {view: View{Voters: voters(0), Same: true, Leaders: view(1, 1, 1).Leaders}, self: 1},
		"a voter is down":                   {view: view(1, 2, 1).with(none, 3), self: 1},
		"the voter does not reach another":  {view: view(1, 2, 1).cut(2, 3), self: 1},
		"the voter has not reported":        {view: silent, self: 1},

		"of low priority":                              {view: view(3, 3, 3).with(low), self: 3},
		"none to one of low priority":                  {view: view(1, 2, 1).with(low), self: 1},
		"among the preferred":                          {view: view(1, 1, 1).with(low), self: 1, groups: []uint32{1, 2}, to: 2},
		"among the preferred, while the low one leads": {view: view(3, 1, 1).with(low), self: 1, groups: []uint32{1, 2}, to: 2},
		"among the preferred, the low one is down":     {view: view(1, 1, 1).with(low, 3), self: 1},
		"one is preferred":                             {view: view(2, 2, 2, 2).with([]int32{0, 7, 0}), self: 2},
	} {
		t.Run(name, func(t *testing.T) {
			want := Move{}
			if len(test.groups) > 0 {
				want = Move{test.groups, []uint64{test.to}, false}
			}
			if m := test.view.uneven(test.self); !reflect.DeepEqual(m, want) {
				t.Errorf("%+v, want %+v", m, want)
			}
		})
	}
}

// Members report which voters they reach while some may have something to move, and else they send nothing.
func TestUnsettled(t *testing.T) {
	for name, test := range map[string]struct {
		view View
		want bool
	}{
		"nothing known":                    {View{}, false},
		"one group":                        {view(1), false},
		"even":                             {view(1, 2, 3, 1), false},
		"uneven":                           {view(1, 2, 3, 1, 1), true},
		"priorities differ":                {view(1).with([]int32{0, 0, -1}), true},
		"priorities that are there do not": {view(1).with([]int32{0, 0, -1}, 3), false},
		"priorities of the two that are there do": {view(1).with([]int32{0, 0, -1}, 2), true},
	} {
		if got := test.view.Unsettled(); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestHysteresis(t *testing.T) {
	uneven := view(1, 2, 1)
	looks := func(h *hysteresis, n int, v View) (moves int) {
		for range n {
			if len(h.look(1, v).Groups) > 0 {
				moves++
			}
		}
		return moves
	}
	elected := view(1, 2, 1)
	elected.Leaders[1].Term++
	down := uneven.with([]int32{0, 0, 0}, 2)
	for name, then := range map[string]func(*hysteresis){
		"start":                 func(*hysteresis) {},
		"other leader":          func(h *hysteresis) { looks(h, 100, view(1, 2, 2)) },
		"same leader elected":   func(h *hysteresis) { looks(h, 100, uneven); looks(h, 1, elected) },
		"group created":         func(h *hysteresis) { looks(h, 100, uneven); looks(h, 1, view(1, 2, 1, 3)) },
		"voter down for a look": func(h *hysteresis) { looks(h, settledLooks-1, uneven); looks(h, 1, down) },
	} {
		t.Run(name, func(t *testing.T) {
			h := new(hysteresis)
			then(h)
			if n := looks(h, settledLooks-1, uneven); n > 0 {
				t.Error("a move is due too early")
			}
			if n := looks(h, 1, uneven); n != 1 {
				t.Error("no move is due")
			}
		})
	}
	t.Run("failed", func(t *testing.T) {
		h := new(hysteresis)
		looks(h, settledLooks, uneven)
		h.pause = failedLooks
		looks(h, settledLooks, view(1, 2, 1, 1)) // another view does not shorten the pause
		if n := looks(h, failedLooks-settledLooks-1, uneven); n > 0 {
			t.Error("a move is due too early")
		}
		if n := looks(h, 1, uneven); n != 1 {
			t.Error("no move is due")
		}
	})
}

// A voter that is up and loses its leadership again and again, as one with a bad disk, does not get it back at once to make the leaders even: each time the
// group would commit nothing for an election timeout. One that was down gets it back as soon as all is settled.
func TestHysteresis_VoterLosesLeadership(t *testing.T) {
	for name, test := range map[string]struct {
		down, before, after bool // it is seen to be down; another process of it is seen with the loss, or later
		look                int  // after the loss, at which a move is due
	}{"up": {look: failedLooks + 1}, "was down": {down: true, look: settledLooks}, "has restarted": {before: true, look: settledLooks}, "restarts": {after: true, look: settledLooks}} {
		h := new(hysteresis)
		h.look(1, view(1, 2, 3))
		elects, lost := view(1, 0, 3), view(1, 1, 3)
		lost.Leaders[1].Term++
		h.look(1, elects)
		restarted := lost
		restarted.Voters = slices.Clone(lost.Voters)
		restarted.Voters[1].Process = [16]byte{9}
		if test.before {
			lost = restarted
		}
		h.look(1, lost)
		if test.after {
			lost = restarted
		}
		if test.down {
			h.look(1, lost.with([]int32{0, 0, 0}, 2))
			h.look(1, lost)
		}
		n := 2
		for ; len(h.look(1, lost).Groups) == 0; n++ {
			if n > 2*failedLooks {
				t.Fatalf("%s: nothing is due", name)
			}
		}
		if n != test.look {
			t.Errorf("%s: due at look %d after the loss, want %d", name, n, test.look)
		}
	}
}

// A cluster is the leaders as they are, and what its members have seen of them.
type cluster struct {
	rng     *rand.Rand
	voters  []Voter
	history [][]Leader // at each look
	members []hysteresis
	seen    [][]int // by member and group: the last look of which the member has seen the leader
	moves   int
}

const maxStale = 3 // looks that a member's view of another member's group may be old

func newCluster(seed uint64) *cluster {
	c := &cluster{rng: rand.New(rand.NewPCG(seed, 1))}
	var priorities []int32
	for i := range 1 + c.rng.IntN(7) {
		priorities = append(priorities, 0)
		if seed%2 == 1 {
			priorities[i] = int32(c.rng.IntN(3) - 1)
		}
	}
	c.voters = voters(priorities...)
	c.members = make([]hysteresis, len(c.voters))
	leaders, heads := make([]Leader, 1+c.rng.IntN(65)), 1+c.rng.IntN(len(c.voters)) // only some of the members lead at first
	for i := range leaders {
		leaders[i] = Leader{Group: uint32(i), Member: c.voters[c.rng.IntN(heads)].ID, Term: 1}
	}
	c.history = [][]Leader{leaders}
	for range c.voters {
		c.seen = append(c.seen, make([]int, len(leaders)))
	}
	return c
}

// see returns what a member sees: what it leads itself as it is, and what others lead as it was up to maxStale looks ago.
func (c *cluster) see(self uint64) View {
	v := View{Voters: c.voters, Same: true}
	seen, now := c.seen[self-1], len(c.history)-1
	for i, l := range c.history[now] {
		seen[i] = max(seen[i], now-c.rng.IntN(maxStale+1))
		if l.Member == self {
			seen[i] = now
		}
		v.Leaders = append(v.Leaders, c.history[seen[i]][i])
	}
	return v
}

// look lets each member look once, in any order, and returns how far from its end the distribution was before and is after each move.
func (c *cluster) look() (sums []int) {
	now := slices.Clone(c.history[len(c.history)-1])
	c.history = append(c.history, now)
	sums = append(sums, c.sum())
	for _, i := range c.rng.Perm(len(c.members)) {
		self := c.voters[i].ID
		m := c.members[i].look(self, c.see(self))
		if len(m.Groups) == 0 || c.rng.IntN(8) == 0 { // the voter may lag
			continue
		}
		l := &now[m.Groups[c.rng.IntN(len(m.Groups))]]
		if l.Group == 0 && !m.Priority || l.Member != self {
			panic(fmt.Sprintf("member %d moves %+v", self, *l)) // it does not lead that
		}
		l.Member, l.Term = m.To[0], l.Term+1
		c.seen[i][l.Group] = len(c.history) - 1
		c.moves++
		sums = append(sums, c.sum())
	}
	return sums
}

// counts returns how many groups each voter of the highest priority leads, and by how many steps of priority the leaders of the others are below.
func (c *cluster) counts() (preferred []int, below int) {
	led := make(map[uint64]int)
	v := View{Voters: c.voters}
	for _, l := range c.history[len(c.history)-1] {
		led[l.Member]++
		below += int(v.voter(v.preferred()[0]).Priority - v.voter(l.Member).Priority)
	}
	for _, id := range v.preferred() {
		preferred = append(preferred, led[id])
	}
	return preferred, below
}

// sum returns the sum of the squares of how many groups the preferred members lead: the less, the more even. A leader of lower priority is worse than any of that.
func (c *cluster) sum() (sum int) {
	preferred, below := c.counts()
	for _, n := range preferred {
		sum += n * n
	}
	return sum + 1e6*below
}

// Members that decide by views of different ages have the voters of the highest priority lead, and make the distribution over these even, by moves of
// which each improves it, and then move nothing any more. Without priorities the moves are as few as possible.
func TestSpread_Converges(t *testing.T) {
	for seed := range uint64(60) {
		c := newCluster(seed)
		want := c.excess()
		for range 64 * 2 * settledLooks {
			for sums := c.look(); len(sums) > 1; sums = sums[1:] {
				if sums[1] >= sums[0] {
					preferred, below := c.counts()
					t.Fatalf("seed %d: a move does not improve on %v and %d", seed, preferred, below)
				}
			}
		}
		preferred, below := c.counts()
		if slices.Max(preferred) > slices.Min(preferred)+1 || below > 0 || seed%2 == 0 && c.moves != want {
			t.Fatalf("seed %d: %v and %d after %d moves, want %d", seed, preferred, below, c.moves, want)
		}
		for moves, n := c.moves, 0; n < 200; n++ {
			if c.look(); c.moves > moves {
				t.Fatalf("seed %d: a move at the end", seed)
			}
		}
	}
}

// excess returns how many leaderships have to move without priorities: what the members have above their shares.
func (c *cluster) excess() (moves int) {
	counts, _ := c.counts()
	slices.SortFunc(counts, func(a, b int) int { return b - a })
	share, more := len(c.history[0])/len(counts), len(c.history[0])%len(counts)
	for i, n := range counts {
		if i < more {
			n--
		}
		moves += max(0, n-share)
	}
	return moves
}
