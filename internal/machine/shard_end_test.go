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
	d.wantHas("a: 0 1 2 3")
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

// A set ends with the last worker that has not expired, although others have left shards.
func TestShards_LastLeaves(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 2, "a", 1, 1, 0), joinCommand("s", 2, "b", 1, 1, 0))
	d.wantHas("a: 1; b: 0")
	d.do(leaveCommand("s", "a", 1), closeCommand(makeID("b")))
	d.want(wire.Code_OK, d.do(d.release("s", "a", 1, false, 1)))
	d.wantHas("none")
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

// restartProcess registers the member's next process, and attaches the session to it.
func (d *shardDriver) restartProcess(boot uint64, attach string) {
	d.tb.Helper()
	register := registerCommand(1, MaxTTL)
	register.GetRegister().Boot, register.GetRegister().FeatureLevel = boot, wire.LevelShards
	token := makeID("token")
	register.GetRegister().Tokens = [][]byte{token[:]}
	d.inc, d.seq = wire.ID{byte(boot)}, 0
	d.want(wire.Code_OK, d.do(register))
	for _, name := range []string{"a", "b"} {
		d.open(name+"2", name, 0)
	}
	if attach != "" {
		id := makeID(attach)
		d.want(wire.Code_OK, d.do(&wire.Command{Op: &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: id[:]}}}))
	}
}

// openLasting opens a session without a TTL.
func (d *shardDriver) openLasting(name string) {
	d.tb.Helper()
	open := openCommand(makeID(name), 0, 0)
	open.GetOpenSession().Name = name
	d.want(wire.Code_OK, d.do(open))
}

// A session that outlives its process keeps its shards for the next worker of the process that attaches it, and gets no others before.
func TestShards_Attached(t *testing.T) {
	d := newShardDriver(t)
	d.openLasting("lasting")
	d.do(joinCommand("s", 6, "lasting", 1, 1, 0), joinCommand("s", 6, "a", 1, 1, 0))
	d.wantHas("lasting: 1 3 5; a: 0 2 4")
	d.do(joinCommand("s", 6, "b", 1, 1, 0))
	d.wantHas("lasting: 1 3 5!; a: 0 2 4!; b:")
	d.restartProcess(3, "")
	d.wantHas("lasting: 1 3 5; a:")
	d.do(joinCommand("s", 6, "a2", 1, 1, 0))
	d.wantHas("lasting: 1 3 5; a: 0 2 4")
	d.restartProcess(4, "lasting")
	d.wantHas("lasting: 1 3 5; a:")
	fence := Ask[*ShardsView](d.m, ShardsQuery{"s"}).Shards[1].Fence
	d.want(wire.Code_OK, d.do(joinCommand("s", 6, "lasting", 9, 1, 0)))
	d.wantHas("lasting: 0 1 2 3 4 5")
	if v := Ask[*ShardsView](d.m, ShardsQuery{"s"}); v.Workers[0].Handle != 9 || v.Shards[1].Fence <= fence {
		t.Errorf("%+v, it had %d", v, fence)
	}
}

// A handle of the process that attaches a session is not that of the former process with the same number, which may still work: it gets what that
// had under fences of its own.
func TestShards_AttachedSameHandle(t *testing.T) {
	d := newShardDriver(t)
	d.openLasting("lasting")
	d.do(joinCommand("s", 2, "lasting", 1, 1, 0))
	fence := Ask[*ShardsView](d.m, ShardsQuery{"s"}).Shards[1].Fence
	d.restartProcess(3, "lasting")
	d.want(wire.Code_NOT_HELD, d.do(d.release("s", "lasting", 1, false, 1)))
	d.want(wire.Code_NOT_HELD, d.do(leaveCommand("s", "lasting", 1)))
	d.want(wire.Code_OK, d.do(joinCommand("s", 2, "lasting", 1, 1, 0)))
	d.wantHas("lasting: 0 1")
	if v := Ask[*ShardsView](d.m, ShardsQuery{"s"}); v.Shards[1].Fence <= fence {
		t.Errorf("fence %d after %d", v.Shards[1].Fence, fence)
	}
	d.do(joinCommand("s", 2, "lasting", 2, 1, 0))
	d.restartProcess(4, "lasting")
	d.want(wire.Code_OK, d.do(joinCommand("s", 2, "lasting", 2, 1, 0))) // in the place of the first; the second, which had nothing, is not there any more
	d.wantHas("lasting: 0 1")
}

// The process that attaches a session takes what that has, rather than what another of its name has left.
func TestShards_AttachedBesideEnded(t *testing.T) {
	d := newShardDriver(t)
	d.open("first", "lasting", 0)
	d.openLasting("lasting")
	d.do(joinCommand("s", 2, "first", 1, 1, 30*second), joinCommand("s", 2, "lasting", 1, 1, 0))
	d.wantHas("lasting: 1; lasting: 0")
	d.do(closeCommand(makeID("first")))
	d.restartProcess(3, "lasting")
	d.wantHas("lasting: (1); lasting: 0")
	d.do(joinCommand("s", 2, "lasting", 1, 1, 0)) // the handle has the number that one of the former process had
	d.wantHas("lasting: (1); lasting: 0")
	if v := Ask[*ShardsView](d.m, ShardsQuery{"s"}); !v.Workers[1].Live || d.m.fence() != v.Shards[0].Fence {
		t.Errorf("%+v", v)
	}
}

// What a worker was to release whose process has ended is free when its session is attached.
func TestShards_AttachedWhileLeaving(t *testing.T) {
	d := newShardDriver(t)
	d.openLasting("lasting")
	d.do(joinCommand("s", 2, "lasting", 1, 1, 0), joinCommand("s", 2, "lasting", 2, 1, 0))
	d.do(leaveCommand("s", "lasting", 1))
	d.do(resizeShardsCommand("s", 3))
	d.restartProcess(3, "")
	d.want(wire.Code_OK, d.do(joinCommand("s", 3, "a2", 1, 1, 0)))
	d.wantHas("lasting: 1!; lasting: 0!; a:")
	d.restartProcess(4, "lasting")
	d.want(wire.Code_OK, d.do(joinCommand("s", 3, "a2", 1, 1, 0)))
	d.wantHas("a: 0 1 2")
}

// A change of the number of shards takes them from workers whose process has ended, once their session is attached.
func TestShards_ResizeAttached(t *testing.T) {
	d := newShardDriver(t)
	open := openCommand(makeID("lasting"), 0, 5*second)
	open.GetOpenSession().Name = "lasting"
	d.want(wire.Code_OK, d.do(open))
	d.do(joinCommand("s", 2, "lasting", 1, 1, 0))
	d.restartProcess(3, "lasting")
	d.wantHas("lasting: 0 1")
	d.do(resizeShardsCommand("s", 3), joinCommand("s", 3, "a2", 1, 1, 0))
	d.wantHas("a:") // the former process may still work
	d.after(5 * second)
	d.wantHas("a: 0 1 2")
}

// Some of what a worker does not have any more is released by none: neither what it has under another fence, nor what others have.
func TestShards_ReleasesItsOwn(t *testing.T) {
	d := newShardDriver(t)
	d.do(joinCommand("s", 2, "a", 1, 1, 0), joinCommand("s", 2, "b", 1, 1, 0))
	d.wantHas("a: 1; b: 0")
	others := d.release("s", "b", 1, false, 0, 1)
	others.GetReleaseShards().Shards[0] = 7 // there is none
	before := d.m.fence()
	d.want(wire.Code_OK, d.do(others))
	if after := d.m.fence(); after != before {
		t.Errorf("a shard was granted again: fence %d after %d", after, before)
	}
	stale := d.release("s", "a", 1, false, 1)
	d.do(stale)
	d.wantHas("a: 1; b: 0")
	again := Ask[*ShardsView](d.m, ShardsQuery{"s"}).Shards[1].Fence
	d.do(stale) // it has it again, under another fence
	if now := Ask[*ShardsView](d.m, ShardsQuery{"s"}).Shards[1].Fence; again == stale.GetReleaseShards().Fences[0] || now != again {
		t.Errorf("released under %d, granted again under %d, and now under %d", stale.GetReleaseShards().Fences[0], again, now)
	}
}
