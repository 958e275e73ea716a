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
	v := View{Voters: voters(0, 0, 0)}
	for i, id := range leaders {
		v.Leaders = append(v.Leaders, Leader{Group: uint32(i), Member: id, Term: 5})
	}
	return v
}

// voters returns voters from 1 on with these priorities.
func voters(priorities ...int32) (list []Voter) {
	for i, p := range priorities {
		list = append(list, Voter{ID: uint64(i + 1), Priority: p, Up: true})
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

func TestDue(t *testing.T) {
	low := []int32{0, 0, -1} // the third should not lead

	for name, test := range map[string]struct {
		view   View
		self   uint64
		groups []uint32
		to     uint64
		higher bool
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
		"nothing may move":                  {view: View{Leaders: view(1, 1, 1).Leaders}, self: 1},
		"nothing known":                     {self: 1},
		"one voter":                         {view: View{Voters: voters(0), Leaders: view(1, 1, 1).Leaders}, self: 1},
		"a voter is down":                   {view: view(1, 2, 1).with([]int32{0, 0, 0}, 3), self: 1},
		"a leader is down":                  {view: view(1, 2, 3, 1, 1).with([]int32{0, 0, 0}, 3), self: 1},

		"should not lead":                                 {view: view(1, 2, 3).with(low), self: 3, groups: []uint32{2}, to: 1, higher: true},
		"should not lead the default group":               {view: view(3, 1, 1, 2).with(low), self: 3, groups: []uint32{0}, to: 2, higher: true},
		"should not lead all":                             {view: view(3, 3).with(low), self: 3, groups: []uint32{0, 1}, to: 1, higher: true},
		"another one should not lead":                     {view: view(1, 1, 1, 3).with(low), self: 1},
		"none leads that should not":                      {view: view(1, 2, 1).with(low), self: 3},
		"should not lead, a preferred one is down":        {view: view(3, 2, 3).with(low, 1), self: 3, groups: []uint32{0, 2}, to: 2, higher: true},
		"should not lead, all preferred ones are down":    {view: view(3, 3, 3).with(low, 1, 2), self: 3},
		"even among the preferred":                        {view: view(1, 2, 1).with(low), self: 1},
		"uneven among the preferred":                      {view: view(1, 1, 1).with(low), self: 1, groups: []uint32{1, 2}, to: 2},
		"uneven among the preferred, the other is down":   {view: view(1, 1, 1).with(low, 3), self: 1},
		"one is preferred":                                {view: view(1, 2, 3, 3).with([]int32{0, 7, 0}), self: 1, groups: []uint32{0}, to: 2, higher: true},
		"one is preferred, the turn of the first by ID":   {view: view(1, 2, 3, 3).with([]int32{0, 7, 0}), self: 3},
		"one is preferred and leads all":                  {view: view(2, 2, 2, 2).with([]int32{0, 7, 0}), self: 2},
		"priorities unknown, the groups' voters differ":   {view: View{Leaders: view(3, 3, 3).Leaders}, self: 3},
		"should not lead, a group without a leader":       {view: view(3, 0).with(low), self: 3},
		"should not lead, another group's leader is down": {view: view(3, 1).with(low, 1), self: 3},
	} {
		t.Run(name, func(t *testing.T) {
			if m, want := test.view.Due(test.self), (Move{test.groups, test.to, test.higher}); !reflect.DeepEqual(m, want) {
				t.Errorf("%+v, want %+v", m, want)
			}
		})
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
	down := View{Leaders: uneven.Leaders}
	for name, then := range map[string]func(*hysteresis){
		"start":                 func(*hysteresis) {},
		"other leader":          func(h *hysteresis) { looks(h, 100, view(1, 2, 3)) },
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
		h.failed()
		looks(h, settledLooks, view(1, 2, 1, 1)) // another view does not shorten the pause
		if n := looks(h, failedLooks-settledLooks-1, uneven); n > 0 {
			t.Error("a move is due too early")
		}
		if n := looks(h, 1, uneven); n != 1 {
			t.Error("no move is due")
		}
	})
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
	for i := range 1 + c.rng.IntN(7) {
		c.voters = append(c.voters, Voter{ID: uint64(i + 1), Up: true})
		if seed%2 == 1 {
			c.voters[i].Priority = int32(c.rng.IntN(3) - 1)
		}
	}
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
	v := View{Voters: c.voters}
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
		l.Member, l.Term = m.To, l.Term+1
		c.seen[i][l.Group] = len(c.history) - 1
		c.moves++
		sums = append(sums, c.sum())
	}
	return sums
}

// counts returns how many groups each voter of the highest priority leads, and how many the others lead together.
func (c *cluster) counts() (preferred []int, others int) {
	led := make(map[uint64]int)
	for _, l := range c.history[len(c.history)-1] {
		led[l.Member]++
		others++
	}
	for _, id := range (View{Voters: c.voters}).preferred() {
		preferred = append(preferred, led[id])
		others -= led[id]
	}
	return preferred, others
}

// sum returns the sum of the squares of how many groups the preferred members lead: the less, the more even. What others lead is worse than any of that.
func (c *cluster) sum() (sum int) {
	preferred, others := c.counts()
	for _, n := range preferred {
		sum += n * n
	}
	return sum + 1e6*others
}

// Members that decide by views of different ages have the voters of the highest priority lead, and make the distribution over these even, by moves of
// which each improves it, as few as possible, and then move nothing any more.
func TestSpread_Converges(t *testing.T) {
	for seed := range uint64(100) {
		c := newCluster(seed)
		want := c.excess()
		for range 66 * 2 * settledLooks {
			for sums := c.look(); len(sums) > 1; sums = sums[1:] {
				if sums[1] >= sums[0] {
					preferred, others := c.counts()
					t.Fatalf("seed %d: a move does not improve on %v and %d", seed, preferred, others)
				}
			}
		}
		if preferred, others := c.counts(); slices.Max(preferred) > slices.Min(preferred)+1 || others > 0 || c.moves != want {
			t.Fatalf("seed %d: %v and %d after %d moves, want %d", seed, preferred, others, c.moves, want)
		}
		for moves, n := c.moves, 0; n < 200; n++ {
			if c.look(); c.moves > moves {
				t.Fatalf("seed %d: a move at the end", seed)
			}
		}
	}
}

// excess returns how many leaderships have to move: those of others than the preferred members, and then what some of these have above their shares.
func (c *cluster) excess() (moves int) {
	counts, others := c.counts()
	moves = others
	for range others {
		slices.Sort(counts)
		counts[0]++
	}
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
