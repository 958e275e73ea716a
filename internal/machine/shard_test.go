package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// shardDriver drives sets of shards. The sessions a to f have names of their own, and no lock-delay; that of "slow" has 5 s.
type shardDriver struct {
	*driver
	changes []fact.ShardChange // of the last entry
}

func newShardDriver(t *testing.T) *shardDriver {
	d := &shardDriver{driver: newDriverAt(t, wire.LevelShards)}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		d.open(name, name, 0)
	}
	d.open("slow", "slow", 5*second)
	return d
}

func (d *shardDriver) open(id, name string, lockDelay int64) {
	d.tb.Helper()
	c := openCommand(makeID(id), MaxTTL, lockDelay)
	c.GetOpenSession().Name = name
	d.want(wire.Code_OK, d.do(c))
}

// do applies the commands as an entry, and as many more as are due at once.
func (d *shardDriver) do(commands ...*wire.Command) []fact.Outcome {
	d.tb.Helper()
	r := d.execute(commands...)
	d.changes = r.Shards
	d.settled()
	return r.Outcomes
}

// settled applies entries until nothing is due at this time.
func (d *shardDriver) settled() {
	d.tb.Helper()
	for at, ok := d.m.NextDeadline(); ok && at <= d.time; at, ok = d.m.NextDeadline() {
		d.changes = append(d.changes, d.execute().Shards...)
	}
	if err := audit(d.m); err != nil {
		d.tb.Fatal(err)
	}
	before := d.has("s")
	d.restart()
	if err := audit(d.m); err != nil {
		d.tb.Fatal(err)
	}
	if after := d.has("s"); after != before {
		d.tb.Fatalf("loaded: %s, before: %s", after, before)
	}
}

// after applies entries some time later.
func (d *shardDriver) after(t int64) {
	d.tb.Helper()
	d.time += t
	d.do()
}

func joinCommand(set string, count uint32, session string, handle uint64, capacity uint32, settle int64) *wire.Command {
	id := makeID(session)
	return &wire.Command{Op: &wire.Command_JoinShards{JoinShards: &wire.JoinShards{
		Set: set, Count: count, Session: id[:], Handle: handle, Capacity: capacity, Settle: settle,
	}}}
}

func leaveCommand(set, session string, handle uint64) *wire.Command {
	id := makeID(session)
	return &wire.Command{Op: &wire.Command_LeaveShards{LeaveShards: &wire.LeaveShards{Set: set, Session: id[:], Handle: handle}}}
}

func resizeShardsCommand(set string, count uint32) *wire.Command {
	return &wire.Command{Op: &wire.Command_ResizeShards{ResizeShards: &wire.ResizeShards{Set: set, Count: count}}}
}

// release is the command that releases shards which a worker has.
func (d *shardDriver) release(set, session string, handle uint64, lost bool, shards ...uint32) *wire.Command {
	d.tb.Helper()
	id := makeID(session)
	c := &wire.ReleaseShards{Set: set, Session: id[:], Handle: handle, Lost: lost}
	v := Ask[*ShardsView](d.m, ShardsQuery{set})
	for _, n := range shards {
		c.Shards, c.Fences = append(c.Shards, n), append(c.Fences, v.Shards[n].Fence)
	}
	return &wire.Command{Op: &wire.Command_ReleaseShards{ReleaseShards: c}}
}

// has describes which worker has which shards, such as "a: 0 1! (2)": ! is to move, and () is not granted.
func (d *shardDriver) has(set string) string {
	v := Ask[*ShardsView](d.m, ShardsQuery{set})
	if v == nil {
		return "none"
	}
	var all []string
	for _, w := range v.Workers {
		text := w.Name + ":"
		for n, sh := range v.Shards {
			switch {
			case sh.Worker != w.Number:
			case sh.Fence == 0:
				text += fmt.Sprintf(" (%d)", n)
			case sh.Moving:
				text += fmt.Sprintf(" %d!", n)
			default:
				text += fmt.Sprintf(" %d", n)
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func (d *shardDriver) wantHas(want string) {
	d.tb.Helper()
	if got := d.has("s"); got != want {
		d.tb.Fatalf("got  %s\nwant %s", got, want)
	}
}

// move has the workers release what is to move, until nothing is, and returns how many shards moved.
func (d *shardDriver) move() (moved int) {
	d.tb.Helper()
	for {
		v := Ask[*ShardsView](d.m, ShardsQuery{"s"})
		before := moved
		for _, w := range v.Workers {
			c := &wire.ReleaseShards{Set: "s", Session: w.Session[:], Handle: w.Handle}
			for n, sh := range v.Shards {
				if sh.Worker == w.Number && sh.Moving {
					c.Shards, c.Fences = append(c.Shards, uint32(n)), append(c.Fences, sh.Fence)
				}
			}
			if moved += len(c.Shards); len(c.Shards) > 0 {
				d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_ReleaseShards{ReleaseShards: c}}))
			}
		}
		if before == moved {
			return moved
		}
	}
}

// Shards are divided among workers; what is too much moves to a new one, and nothing else.
func TestShards_Balance(t *testing.T) {
	d := newShardDriver(t)
	d.want(wire.Code_OK, d.do(joinCommand("s", 7, "a", 1, 1, 0)))
	d.wantHas("a: 0 1 2 3 4 5 6")
	d.want(wire.Code_OK, d.do(joinCommand("s", 7, "b", 1, 1, 0)))
	d.wantHas("a: 0 1 2 3 4! 5! 6!; b:")
	if n := d.move(); n != 3 {
		t.Errorf("%d shards moved, want 3", n)
	}
	d.wantHas("a: 0 1 2 3; b: 4 5 6")
	d.want(wire.Code_OK, d.do(joinCommand("s", 7, "c", 1, 1, 0)))
	if n := d.move(); n != 2 {
		t.Errorf("%d shards moved, want 2", n)
	}
	d.wantHas("a: 0 1 2; b: 4 5; c: 3 6")
	d.want(wire.Code_OK, d.do(leaveCommand("s", "a", 1)))
	d.wantHas("a: 0! 1! 2!; b: 4 5; c: 3 6")
	if n := d.move(); n != 3 {
		t.Errorf("%d shards moved, want 3", n)
	}
	d.wantHas("b: 2 4 5; c: 0 1 3 6")
}

// A worker gets shards in proportion to its capacity.
func TestShards_Capacity(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 10, "a", 1, 1, 0), joinCommand("s", 10, "b", 1, 3, 0))
	d.wantHas("a: 7 9; b: 0 1 2 3 4 5 6 8")
}

// The shards of a worker that has ended wait, nothing moves meanwhile, and they go back to the worker of the same name.
func TestShards_Settle(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 6, "a", 1, 1, 30*second), joinCommand("s", 6, "b", 1, 1, 30*second), joinCommand("s", 6, "c", 1, 1, 30*second))
	d.wantHas("a: 2 5; b: 1 4; c: 0 3")
	fences := Ask[*ShardsView](d.m, ShardsQuery{"s"}).Shards
	d.do(closeCommand(makeID("a")))
	d.wantHas("a: (2) (5); b: 1 4; c: 0 3")
	d.do(joinCommand("s", 6, "d", 1, 1, 30*second))
	d.wantHas("a: (2) (5); b: 1 4; c: 0 3; d:")
	d.open("again", "a", 0)
	d.do(joinCommand("s", 6, "again", 9, 1, 30*second))
	d.wantHas("a: 2 5; b: 1 4; c: 0 3!; d:")
	if after := Ask[*ShardsView](d.m, ShardsQuery{"s"}).Shards; after[2].Fence <= fences[2].Fence || after[1].Fence != fences[1].Fence {
		t.Error("fences:", fences, after)
	}
	d.move()
	d.do(closeCommand(makeID("b")))
	d.after(29 * second)
	d.wantHas("a: 2 5; b: (1) (4); c: 0; d: 3")
	d.after(second)
	d.wantHas("a: 2 5; c: 0 4; d: 1 3")
}

// A lock-delay keeps the shards of a lost session from others, also from one of the same name.
func TestShards_LockDelay(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 2, "slow", 1, 1, 0))
	d.do(joinCommand("s", 2, "b", 1, 1, 0))
	d.do(d.release("s", "slow", 1, true, 1)) // its work goes on
	d.wantHas("slow: 0; b:")
	d.after(4 * second)
	d.wantHas("slow: 0; b:")
	d.after(second)
	d.wantHas("slow: 0; b: 1")
	d.do(closeCommand(makeID("slow")))
	d.open("slow2", "slow", 0)
	d.do(joinCommand("s", 2, "slow2", 1, 1, 0))
	d.wantHas("slow: (0); b: 1")
	d.after(5 * second)
	d.wantHas("slow: 0; b: 1")
}

// The number of shards changes when the workers of the former one have released theirs.
func TestShards_Resize(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 2, "a", 1, 1, 0))
	if r := d.want(wire.Code_LIMIT_MISMATCH, d.do(joinCommand("s", 3, "b", 1, 1, 0))); r.GetLimit() != 2 {
		t.Error(r)
	}
	d.want(wire.Code_OK, d.do(resizeShardsCommand("s", 3)))
	d.want(wire.Code_BUSY, d.do(resizeShardsCommand("s", 4)))
	d.want(wire.Code_LIMIT_MISMATCH, d.do(joinCommand("s", 2, "c", 1, 1, 0)))
	d.want(wire.Code_OK, d.do(joinCommand("s", 3, "b", 1, 1, 0)))
	d.wantHas("a: 0! 1!; b:")
	d.move()
	d.wantHas("b: 0 1 2")
	d.do(closeCommand(makeID("b"))) // the last worker: the next one decides
	d.want(wire.Code_OK, d.do(joinCommand("s", 1, "c", 1, 1, 0)))
	d.wantHas("c: 0")
}

// An entry grants some shards, and the next ones the others.
func TestShards_Portions(t *testing.T) {
	d := newShardDriver(t)
	r := d.execute(joinCommand("s", MaxShards, "a", 1, 1, 0))
	if n := len(r.Shards); n != MaxGrants+1 {
		t.Errorf("%d changes in an entry, want %d", n, MaxGrants+1)
	}
	d.restart()
	d.settled()
	if v := Ask[*ShardsView](d.m, ShardsQuery{"s"}); v.Owned != MaxShards {
		t.Error(v.Owned)
	}
}

// Some shards move at a time.
func TestShards_MovesAtATime(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 100, "a", 1, 1, 0))
	d.do(joinCommand("s", 100, "b", 1, 1, 0))
	if v := Ask[*ShardsView](d.m, ShardsQuery{"s"}); v.Moving != MaxMoves {
		t.Error(v.Moving)
	}
	if n := d.move(); n != 50 {
		t.Errorf("%d moved, want 50", n)
	}
}

// What has changed is a fact, in the order of events.
func TestShards_Changes(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 2, "a", 7, 1, 0))
	a, v := makeID("a"), Ask[*ShardsView](d.m, ShardsQuery{"s"})
	want := []fact.ShardChange{
		{Set: "s", All: true},
		{Set: "s", Shard: 0, Fence: v.Shards[0].Fence, Session: a, Handle: 7},
		{Set: "s", Shard: 1, Fence: v.Shards[1].Fence, Session: a, Handle: 7},
	}
	if !slices.Equal(d.changes, want) {
		t.Errorf("%+v", d.changes)
	}
	d.do(joinCommand("s", 2, "b", 7, 1, 0))
	want[2].Moving = true
	if !slices.Equal(d.changes, want[2:]) {
		t.Errorf("%+v", d.changes)
	}
	d.do(d.release("s", "a", 7, false, 1))
	b := makeID("b")
	want = []fact.ShardChange{{Set: "s", Shard: 1}, {Set: "s", Shard: 1, Fence: d.m.fence(), Session: b, Handle: 7}}
	if !slices.Equal(d.changes, want) {
		t.Errorf("%+v", d.changes)
	}
}

// What is refused has no effect.
func TestShards_Refused(t *testing.T) {
	d := newShardDriver(t)
	for _, c := range []*wire.Command{
		joinCommand("", 1, "a", 1, 1, 0), joinCommand("s", 0, "a", 1, 1, 0), joinCommand("s", MaxShards+1, "a", 1, 1, 0),
		joinCommand("s", 1, "a", 1, 0, 0), joinCommand("s", 1, "a", 1, MaxCapacity+1, 0), joinCommand("s", 1, "a", 1, 1, -1), joinCommand("s", 1, "a", 1, 1, MaxSettle+1),
		resizeShardsCommand("s", 0), resizeShardsCommand("s", MaxShards+1),
	} {
		d.want(wire.Code_INVALID, d.do(c))
	}
	d.want(wire.Code_SESSION_EXPIRED, d.do(joinCommand("s", 1, "none", 1, 1, 0)))
	d.want(wire.Code_NOT_HELD, d.do(leaveCommand("s", "a", 1)))
	d.want(wire.Code_OK, d.do(resizeShardsCommand("s", 5)))
	d.wantHas("none")
	d.do(joinCommand("s", 1, "a", 1, 1, 0))
	stale := d.release("s", "a", 1, false, 0)
	stale.GetReleaseShards().Fences[0]--
	d.want(wire.Code_OK, d.do(stale))
	stale.GetReleaseShards().Fences = nil
	d.want(wire.Code_INVALID, d.do(stale))
	d.wantHas("a: 0")
}
