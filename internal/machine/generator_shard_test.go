package machine

import (
	"cmp"
	"math"
	"slices"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// shardCommand is a command about sets of shards, or one that ends or moves what they have.
func (g *generator) shardCommand(r *reference.Model, inc wire.ID) *wire.Command {
	n := g.rand.IntN(1000)
	for _, choice := range []struct {
		weight int
		make   func() *wire.Command
	}{
		{340, func() *wire.Command { return g.joinShards(r) }},
		{60, func() *wire.Command { return g.leaveShards(r) }},
		{320, func() *wire.Command { return g.releaseShards(r) }},
		{25, func() *wire.Command { return g.resizeShards(r) }},
		{75, func() *wire.Command { return g.openSession(r, inc) }},
		{30, func() *wire.Command { return g.closeSession(r) }},
		{40, func() *wire.Command { return g.attach(r) }},
	} {
		if n -= choice.weight; n < 0 {
			return choice.make()
		}
	}
	return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}
}

// joinShards joins one of few sets, often in the place of a worker whose process or session has ended.
func (g *generator) joinShards(r *reference.Model) *wire.Command {
	c := &wire.JoinShards{Set: g.shardSet(), Session: g.session(r), Handle: g.rand.Uint64N(2), Capacity: 1, Settle: g.settle()}
	if g.chance(30) {
		c.Capacity = 1 + g.rand.Uint32N(4)
	}
	c.Count = g.shardCount(c.Set)
	if s := reference.FindShards(r, c.Set); s != nil {
		other := 3 // percent
		if !slices.ContainsFunc(s.Workers, func(w *reference.ShardWorker) bool { return reference.Lives(r, w.Session) }) {
			other = 40 // which changes it
		}
		if !g.chance(other) {
			c.Count = cmp.Or(s.Next, s.Count)
		}
	}
	if s, w := g.shardWorker(r, func(w *reference.ShardWorker) bool { return w.Left }); w != nil && g.chance(40) {
		c.Set, c.Session, c.Count = s.Name, w.Session[:], cmp.Or(s.Next, s.Count)
	}
	g.spoilJoin(c)
	return &wire.Command{Op: &wire.Command_JoinShards{JoinShards: c}}
}

// spoilJoin makes nonsense of some.
func (g *generator) spoilJoin(c *wire.JoinShards) {
	switch g.rand.IntN(150) {
	case 0:
		c.Set = g.name()
	case 1:
		c.Count = []uint32{0, 1, reference.MaxShards, reference.MaxShards + 1, math.MaxUint32}[g.rand.IntN(5)]
	case 2:
		c.Capacity = []uint32{0, reference.MaxCapacity, reference.MaxCapacity + 1, math.MaxUint32}[g.rand.IntN(4)]
	case 3:
		c.Settle = []int64{-1, 1, reference.MaxSettle, reference.MaxSettle + 1, math.MaxInt64}[g.rand.IntN(5)]
	case 4:
		c.Session = c.Session[:g.rand.IntN(17)]
	case 5:
		c.Handle = math.MaxUint64 - g.rand.Uint64N(2)
	}
}

// shardSet names one of few sets.
func (g *generator) shardSet() string {
	return string(rune('a' + min(g.rand.IntN(4), g.rand.IntN(4))))
}

// shardCount is that of a new set: mostly one for each name.
func (g *generator) shardCount(set string) uint32 {
	if len(set) != 1 || g.chance(10) {
		return 1 + g.rand.Uint32N(50)
	}
	return []uint32{5, 12, 40, 1}[(set[0]-'a')%4]
}

// settle is mostly so short that some workers come back in time, and others do not.
func (g *generator) settle() int64 {
	switch {
	case g.chance(25):
		return 0
	case g.chance(5):
		return g.rand.Int64N(60 * second)
	}
	return g.rand.Int64N(2 * second)
}

// shardWorker returns one of the workers that are meant, with its set; nil: there is none.
func (g *generator) shardWorker(r *reference.Model, meant func(*reference.ShardWorker) bool) (*reference.ShardSet, *reference.ShardWorker) {
	type worker struct {
		set *reference.ShardSet
		*reference.ShardWorker
	}
	var all []worker
	for _, s := range r.ShardSets {
		for _, w := range s.Workers {
			if meant(w) {
				all = append(all, worker{s, w})
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	w := all[g.rand.IntN(len(all))]
	return w.set, w.ShardWorker
}

func (g *generator) leaveShards(r *reference.Model) *wire.Command {
	c := &wire.LeaveShards{Set: g.shardSet(), Session: g.session(r), Handle: g.rand.Uint64N(2)}
	again := g.chance(10)
	if s, w := g.shardWorker(r, func(w *reference.ShardWorker) bool { return w.Session != (wire.ID{}) && w.Leaving == again }); w != nil && g.chance(95) {
		c.Set, c.Session, c.Handle = s.Name, w.Session[:], w.Handle
	}
	switch g.rand.IntN(60) {
	case 0:
		c.Set = g.name()
	case 1:
		c.Session = c.Session[:g.rand.IntN(17)]
	}
	return &wire.Command{Op: &wire.Command_LeaveShards{LeaveShards: c}}
}

// releaseShards releases shards of a worker, mostly those that it is to release.
func (g *generator) releaseShards(r *reference.Model) *wire.Command {
	c := &wire.ReleaseShards{Set: g.shardSet(), Session: g.session(r), Handle: g.rand.Uint64N(2), Lost: g.chance(25)}
	any := g.chance(10)
	asked := func(s *reference.ShardSet, w *reference.ShardWorker) (shards []uint32, fences []uint64) {
		for i, sh := range s.Shards {
			if sh.Owner == w && (sh.Moving || w.Leaving || any) {
				shards, fences = append(shards, uint32(i)), append(fences, sh.Fence)
			}
		}
		return shards, fences
	}
	s, w := g.shardWorker(r, func(w *reference.ShardWorker) bool {
		if w.Session == (wire.ID{}) {
			return false
		}
		for _, s := range r.ShardSets {
			if shards, _ := asked(s, w); len(shards) > 0 {
				return true
			}
		}
		return false
	})
	if w != nil && g.chance(95) {
		c.Set, c.Session, c.Handle = s.Name, w.Session[:], w.Handle
		c.Shards, c.Fences = asked(s, w)
		g.choose(c)
	}
	g.spoilRelease(c)
	return &wire.Command{Op: &wire.Command_ReleaseShards{ReleaseShards: c}}
}

// choose leaves some of the shards, in another order.
func (g *generator) choose(c *wire.ReleaseShards) {
	g.rand.Shuffle(len(c.Shards), func(i, j int) {
		c.Shards[i], c.Shards[j] = c.Shards[j], c.Shards[i]
		c.Fences[i], c.Fences[j] = c.Fences[j], c.Fences[i]
	})
	if g.chance(60) {
		n := 1 + g.rand.IntN(len(c.Shards))
		c.Shards, c.Fences = c.Shards[:n], c.Fences[:n]
	}
}

// spoilRelease makes nonsense of some.
func (g *generator) spoilRelease(c *wire.ReleaseShards) {
	switch g.rand.IntN(80) {
	case 0:
		c.Set = g.name()
	case 1:
		c.Session = c.Session[:g.rand.IntN(17)]
	case 2:
		c.Fences = append(c.Fences, 1)
	case 3:
		n := reference.MaxReleasedShards + g.rand.IntN(2)
		c.Shards, c.Fences = make([]uint32, n), make([]uint64, n)
	case 4: // twice, and one that no set has
		c.Shards, c.Fences = append(c.Shards, c.Shards...), append(c.Fences, c.Fences...)
		c.Shards, c.Fences = append(c.Shards, math.MaxUint32), append(c.Fences, 1)
	case 5, 6:
		for i := range c.Fences {
			c.Fences[i] -= g.rand.Uint64N(2)
		}
	}
}

func (g *generator) resizeShards(r *reference.Model) *wire.Command {
	c := &wire.ResizeShards{Set: g.shardSet(), Count: 1 + g.rand.Uint32N(50)}
	if s := reference.FindShards(r, c.Set); s != nil && g.chance(30) {
		c.Count = cmp.Or(s.Next, s.Count)
	}
	switch g.rand.IntN(40) {
	case 0:
		c.Set = g.name()
	case 1:
		c.Count = []uint32{0, reference.MaxShards + 1, math.MaxUint32}[g.rand.IntN(3)]
	}
	return &wire.Command{Op: &wire.Command_ResizeShards{ResizeShards: c}}
}

// shardLog makes the commands of logs that are nearly of shards alone. In some of them, sessions live long.
type shardLog struct {
	*generator
	long bool
}

// newShardLog returns a generator of the logs of shards.
func newShardLog(seed uint64) *shardLog {
	c := &shardLog{generator: newGenerator(seed), long: seed%3 == 0}
	c.mix = c.command
	return c
}

func (c *shardLog) command(r *reference.Model, inc wire.ID) *wire.Command {
	switch n := c.rand.IntN(1000); {
	case n < 100:
		return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}
	case n < 120:
		return c.renewSession(r)
	case n < 130:
		return c.lock(r) // which uses up fences
	case n < 140:
		return c.generator.command(r, inc)
	case n < 143:
		return c.raise(r)
	}
	command := c.shardCommand(r, inc)
	if op := command.GetOpenSession(); op != nil && (c.long || c.chance(40)) && op.Ttl > 0 && op.Ttl <= 3*second {
		op.Ttl *= 5
	}
	return command
}
