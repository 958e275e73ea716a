package machine

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// Logs in which members are removed, several by one command or while sessions expire, and their sessions wait for
// what others of them hold; and in which the limits of semaphores shrink under permits that sessions are left with.
func TestRandom_RemovalsAgainstReference(t *testing.T) {
	if *seedFlag != 0 {
		runRemovals(t, *seedFlag, perSeed, nil)
		return
	}
	n := min(*commands/4, 60_000)
	if testing.Short() {
		n = min(n, 6_000)
	}
	seen := make(map[string]int)
	for seed := range uint64(n / perSeed) {
		if runRemovals(t, seed+1, perSeed, seen); t.Failed() {
			return
		}
	}
	if n >= 25_000 {
		wantReached(t, seen, "members removed together", "a member removed while sessions expire", "a claim of more than the limit")
	}
}

// runRemovals counts in seen what happens, unless it is nil.
func runRemovals(t *testing.T, seed uint64, n int, seen map[string]int) {
	t.Helper()
	c, r := &removalLog{newGenerator(seed)}, newRig()
	c.mix = c.command
	level := uint32(wire.FeatureLevel)
	if seed%8 < 2 { // until a random command raises it
		level = wire.LevelTogether - 1
	}
	if seed%2 == 0 {
		r.further(level)
	} else {
		r.begin(level)
	}
	if r.model.Reached = seen; seed%3 == 0 {
		r.split(1 + int(seed%5))
	}
	for c.made < n {
		data := c.entry(&r.model)
		if c.rand.IntN(30) == 0 {
			if err := r.reload(); err != nil {
				t.Fatalf("seed %d, index %d: reload: %v", seed, r.index, err)
			}
		}
		if err := r.apply(data); err != nil {
			t.Fatalf("seed %d, index %d: %v\nrepeat: go test ./internal/machine -run TestRandom_Removals -seed %d", seed, r.index, err, seed)
		}
	}
}

// removalLog makes the commands of such logs.
type removalLog struct{ *generator }

// entry makes an entry: registrations until several processes run, and at times one at which a member is removed by time.
func (c *removalLog) entry(r *reference.Model) []byte {
	for _, m := range r.Members() {
		if m.Silent && r.Config.RemoveAfter > 0 && c.chance(30) {
			c.time = max(c.time, m.Since+r.Config.RemoveAfter)
			return must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Time: c.time}))
		}
	}
	if len(r.Incarnations) < 5 && c.chance(40) {
		return must(proto.Marshal(&wire.Batch{Version: wire.BatchVersion, Time: c.step(), Submissions: []*wire.Submission{c.registration(r)}}))
	}
	return c.generator.entry(r)
}

func (c *removalLog) command(r *reference.Model, inc wire.ID) *wire.Command {
	n := c.rand.IntN(600)
	for _, choice := range []struct {
		weight int
		make   func() *wire.Command
	}{
		{90, func() *wire.Command { return c.wait(r) }},
		{40, func() *wire.Command { return c.unlock(r) }},
		{30, func() *wire.Command { return c.clear(r) }},
		{60, func() *wire.Command { return c.acquire(r) }},
		{15, func() *wire.Command { return c.release(r) }},
		{30, func() *wire.Command { return c.shrink(r) }},
		{40, func() *wire.Command { return c.open(r, inc) }},
		{60, func() *wire.Command { return c.attach(r) }},
		{60, func() *wire.Command { return c.gossip(r) }},
		{80, func() *wire.Command { return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}} }},
		{30, func() *wire.Command { return c.remove(r, inc) }},
		{5, func() *wire.Command { return c.raise(r) }},
	} {
		if n -= choice.weight; n < 0 {
			return choice.make()
		}
	}
	return c.generator.command(r, inc)
}

// wait asks for one of few locks or elections, and waits for it.
func (c *removalLog) wait(r *reference.Model) *wire.Command {
	return &wire.Command{Op: &wire.Command_Lock{Lock: &wire.Lock{
		Name: string(rune('a' + c.rand.IntN(3))), Session: c.session(r), Handle: c.rand.Uint64N(4),
		Wait: true, Election: c.chance(20), Shared: c.chance(20),
	}}}
}

// shrink sets a limit, mostly below what an attached session was left with.
func (c *removalLog) shrink(r *reference.Model) *wire.Command {
	command := c.resize()
	for _, s := range r.Semaphores {
		if p := c.some(s, func(p reference.Permit) bool { return p.Unclaimed && p.Permits > 1 }); p != nil && c.chance(70) {
			command.GetResize().Name, command.GetResize().Limit = s.Name, p.Permits-1
		}
	}
	return command
}

// open opens a session that can live as long as its member.
func (c *removalLog) open(r *reference.Model, inc wire.ID) *wire.Command {
	command := c.openSession(r, inc)
	if c.chance(60) {
		command.GetOpenSession().Ttl = []int64{0, 100 * second}[c.rand.IntN(2)]
	}
	return command
}

// remove has members removed soon, or by a further group at once: all but the one that the command comes from, once several
// have sessions. Others come in their place.
func (c *removalLog) remove(r *reference.Model, inc wire.ID) *wire.Command {
	if r.Groups.Number == 0 {
		return &wire.Command{Op: &wire.Command_SetGroupConfig{SetGroupConfig: &wire.SetGroupConfig{Voters: 3, RemoveAfter: (6 + c.rand.Int64N(4)) * second}}}
	}
	own, with := r.Incarnation(inc), make(map[uint64]bool)
	for _, s := range r.Sessions {
		with[s.Member] = true
	}
	for range c.group {
		c.member(r)
	}
	op := &wire.FollowMembers{Index: r.Groups.Index + 1, Level: r.Level + uint32(c.rand.IntN(10)/9)}
	for id := uint64(1); id <= c.last+1; id++ {
		if known := r.Member(id); known == nil || own != nil && own.Member == id || !known.Removed && (len(with) < 4 || c.chance(10)) {
			op.Members = append(op.Members, &wire.GroupMember{Member: id, Name: string(rune('a' + c.rand.IntN(3))), FeatureLevel: r.Level + 1})
		}
	}
	return &wire.Command{Op: &wire.Command_FollowMembers{FollowMembers: op}}
}
