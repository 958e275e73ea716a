package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// The shards of a worker that was leaving wait for none of its name.
func TestShards_LeavingEnds(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 4, "a", 1, 1, 30*second), joinCommand("s", 4, "b", 1, 1, 30*second))
	d.do(leaveCommand("s", "a", 1))
	d.wantHas("a: 1! 3!; b: 0 2")
	d.do(closeCommand(makeID("a")))
	d.wantHas("b: 0 1 2 3")
}

// What was to move from a worker stays with the one that takes its place, unless it is still too much.
func TestShards_MovingEnds(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 4, "a", 1, 1, 30*second))
	d.do(joinCommand("s", 4, "b", 1, 1, 30*second))
	d.wantHas("a: 0 1 2! 3!; b:")
	d.do(closeCommand(makeID("a")))
	d.wantHas("a: (0) (1) (2) (3); b:")
	d.do(closeCommand(makeID("b")))
	d.open("again", "a", 0)
	d.do(joinCommand("s", 4, "again", 1, 1, 0))
	d.wantHas("a: 0 1 2 3; b:")
	d.after(30 * second)
	d.wantHas("a: 0 1 2 3")
}

// A set ends with its last worker, once what that had is free.
func TestShards_LastEnds(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 4, "a", 1, 1, 30*second), joinCommand("s", 4, "slow", 1, 1, 0))
	d.wantHas("a: 1 3; slow: 0 2")
	d.do(closeCommand(makeID("a")), closeCommand(makeID("slow")))
	d.after(5 * second)
	d.wantHas("a: (1) (3); slow:")
	d.after(25 * second)
	d.wantHas("none")
	if n := d.m.shardSets.all; n != 0 {
		t.Errorf("%d shards are left", n)
	}
}

// What the last worker has left is freed in portions.
func TestShards_LastEndsInPortions(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", MaxShards, "a", 1, 1, 0))
	d.m.split = 1000
	d.execute(closeCommand(makeID("a")))
	if v := Ask[*ShardsView](d.m, ShardsQuery{"s"}); v == nil || v.Owned != 0 {
		t.Errorf("%+v", v)
	}
	if err := audit(d.m); err != nil {
		t.Error(err)
	}
	d.restart()
	d.settled()
	d.wantHas("none")
}

// A session that is attached to another process keeps its shards for the next worker of that process.
func TestShards_Attached(t *testing.T) {
	d := newShardDriver(t)
	open := openCommand(makeID("lasting"), 0, 0)
	open.GetOpenSession().Name = "lasting"
	d.want(wire.Code_OK, d.do(open))
	d.do(joinCommand("s", 4, "lasting", 1, 1, 0), joinCommand("s", 4, "a", 1, 1, 0))
	d.wantHas("lasting: 1 3; a: 0 2")
	d.want(wire.Code_OK, d.do(joinCommand("s", 4, "lasting", 2, 1, 0))) // another handle of the same process
	if n := d.move(); n != 1 {
		t.Errorf("%d moved", n)
	}
	before := d.has("s")
	register := registerCommand(1, MaxTTL)
	register.GetRegister().Boot, register.GetRegister().FeatureLevel = 3, wire.LevelShards
	token := makeID("token")
	register.GetRegister().Tokens = [][]byte{token[:]}
	d.inc, d.seq = wire.ID{3}, 0
	d.want(wire.Code_OK, d.do(register))
	lasting := makeID("lasting")
	d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: lasting[:]}}}))
	fence := Ask[*ShardsView](d.m, ShardsQuery{"s"}).Shards[1].Fence
	d.want(wire.Code_OK, d.do(joinCommand("s", 4, "lasting", 9, 1, 0)))
	after := Ask[*ShardsView](d.m, ShardsQuery{"s"})
	if after.Workers[0].Handle != 9 || after.Shards[1].Fence <= fence {
		t.Errorf("%+v, it had %d", after, fence)
	}
	t.Log(before, "->", d.has("s"))
}

// Some of what a worker does not have any more is released by none: neither what it has under another fence, nor what others have.
func TestShards_ReleasesItsOwn(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 2, "a", 1, 1, 0), joinCommand("s", 2, "b", 1, 1, 0))
	d.wantHas("a: 1; b: 0")
	others := d.release("s", "b", 1, false, 0, 1)
	others.GetReleaseShards().Shards[0] = 7 // there is none
	d.want(wire.Code_OK, d.do(others))
	stale := d.release("s", "a", 1, false, 1)
	d.do(stale)
	d.do(stale) // it has it again, under another fence
	d.wantHas("a: 1; b: 0")
	v := Ask[*ShardsView](d.m, ShardsQuery{"s"})
	if v.Shards[1].Fence == stale.GetReleaseShards().Fences[0] {
		t.Error("it has the shard under the fence that it has released")
	}
}
