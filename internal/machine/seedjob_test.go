package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// In a group that disaster recovery begins no key runs again that has run in the old one, and no period is shorter.
func TestSeed_Jobs(t *testing.T) {
	d := newJobDriver(t)
	s := makeID("s")
	run := func(key string, result wire.RunResult) {
		r := d.want(wire.Code_OK, d.do(runCommand("j", key, s, 1, 0)))
		if result != wire.RunResult_RUNNING {
			d.want(wire.Code_OK, d.do(endCommand("j", key, s, 1, r.GetFence(), result, "")))
		}
	}
	run("10", wire.RunResult_DONE)
	run("9", wire.RunResult_FAILED)
	run("11", wire.RunResult_RUNNING)
	run("none", wire.RunResult_NOT_STARTED)
	d.want(wire.Code_OK, d.do(everyCommand("j", s, 1, 10*second), everyCommand("j2", s, 1, 10*second)))
	d.time = 4 * second
	d.do(openCommand(makeID("later"), MaxTTL, 0))
	pairs, err := d.m.Seed(1000, fact.Seeding{})
	if err != nil {
		t.Fatal(err)
	}
	d.disk = disk{}
	for k, v := range pairs {
		d.disk[string(k)] = v
	}
	d.restart()
	register := registerCommand(7, MaxTTL)
	register.GetRegister().FeatureLevel = wire.FeatureLevel
	d.inc, d.seq = wire.ID{7}, 0
	d.want(wire.Code_OK, d.do(register))
	d.want(wire.Code_OK, d.do(openCommand(s, MaxTTL, 0)))
	d.wantDone(wire.RunResult_DONE, d.do(runCommand("j", "10", s, 1, 0)))
	d.wantDone(wire.RunResult_FAILED, d.do(runCommand("j", "9", s, 1, 1)))
	d.wantDone(wire.RunResult_LOST, d.do(runCommand("j", "11", s, 1, 1)))
	for _, key := range []string{"9", "11", "none"} {
		d.want(wire.Code_OK, d.do(runCommand("j", key, s, 2, 0)))
	}
	d.want(wire.Code_QUEUED, d.do(everyCommand("j", s, 1, 10*second)))
	d.time = 10*second - 1
	if o := d.do(); len(o) != 0 {
		t.Errorf("granted before the period: %v", o)
	}
	d.time++
	if r := d.want(wire.Code_OK, d.do()); r.GetRun().GetAttempt() != 2 {
		t.Error(r)
	}
}
