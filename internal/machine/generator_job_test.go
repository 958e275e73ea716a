package machine

import (
	"fmt"
	"math"
	"strings"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/wire"
)

// jobCommand is a command about the runs of jobs, or one that ends or moves what they have.
func (g *generator) jobCommand(r *reference.Model, inc wire.ID) *wire.Command {
	n := g.rand.IntN(1000)
	for _, choice := range []struct {
		weight int
		make   func() *wire.Command
	}{
		{480, func() *wire.Command { return g.runJob(r) }},
		{230, func() *wire.Command { return g.endRun(r) }},
		{70, func() *wire.Command { return g.withdraw(r, inc) }},
		{70, func() *wire.Command { return g.openSession(r, inc) }},
		{30, func() *wire.Command { return g.closeSession(r) }},
		{40, func() *wire.Command { return g.attach(r) }},
		{10, func() *wire.Command { return g.deleteJob(r) }},
	} {
		if n -= choice.weight; n < 0 {
			return choice.make()
		}
	}
	return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}
}

// runJob asks for a run of one of few keys, so that others wait for it or have closed it, and sometimes for one of more keys
// than a job retains.
func (g *generator) runJob(r *reference.Model) *wire.Command {
	c := &wire.RunJob{Job: g.jobName(), Session: g.session(r), Handle: g.rand.Uint64N(3), Attempts: g.rand.Uint32N(4)}
	switch c.Key = g.jobKey(c.Job); {
	case g.chance(20):
		c.Keep = reference.MinKeep + g.rand.Int64N(second/2)
	case g.chance(5):
		c.Keep = g.maxHold()
	}
	if all := reference.Running(r, false); len(all) > 0 && g.chance(35) {
		l := all[g.rand.IntN(len(all))]
		c.Job, c.Key = l.Job, l.RunKey
	} else if len(r.Jobs) > 0 && g.chance(35) { // that has run already, perhaps
		if j := r.Jobs[g.rand.IntN(len(r.Jobs))]; len(j.Runs) > 0 {
			c.Job, c.Key = j.Name, j.Runs[g.rand.IntN(len(j.Runs))].Key
		}
	}
	if all := reference.Running(r, true); len(all) > 0 && g.chance(40) { // take over, or wait
		l := all[g.rand.IntN(len(all))]
		if c.Job, c.Key = l.Job, l.RunKey; g.chance(80) {
			c.Session = l.Owner.Session[:]
		}
	}
	if c.Key == "" || c.Job != manyKeys && g.chance(20) {
		c.Key, c.Attempts, c.Every = "", 0, g.maxHold()
	}
	if g.oftenEvery && (c.Every != 0 || g.chance(50)) {
		c.Job, c.Key, c.Attempts, c.Every = "a", "", 0, reference.MinEvery
	}
	g.spoilRun(c)
	return &wire.Command{Op: &wire.Command_RunJob{RunJob: c}}
}

// spoilRun makes nonsense of some.
func (g *generator) spoilRun(c *wire.RunJob) {
	switch g.rand.IntN(120) {
	case 0:
		c.Job = g.name()
	case 1:
		c.Key = g.name()
	case 2:
		c.Every = g.rand.Int64() - math.MaxInt64/2
	case 3:
		c.Keep = []int64{-1, 1, reference.MinKeep, reference.MaxKeep, reference.MaxKeep + 1, math.MaxInt64}[g.rand.IntN(6)]
	case 4:
		c.Every = []int64{-1, 0, 1, reference.MinEvery, reference.MaxEvery, reference.MaxEvery + 1, math.MaxInt64}[g.rand.IntN(7)]
	case 5:
		c.Attempts = math.MaxUint32 - g.rand.Uint32N(2)
	case 6:
		c.Attempts = g.rand.Uint32N(2)
	case 7:
		c.Session = c.Session[:g.rand.IntN(17)]
	}
}

// manyKeys is the job that has more keys than are retained.
const manyKeys = "c"

func (g *generator) jobName() string {
	if g.chance(35) {
		return manyKeys
	}
	return string(rune('a' + g.rand.IntN(2)))
}

// jobKey is one of few, the natural order of which is not that of their bytes, or one of many.
func (g *generator) jobKey(job string) string {
	switch {
	case job == manyKeys && g.chance(20):
		return fmt.Sprintf("k-%d", g.made%1_000)
	case job == manyKeys:
		return fmt.Sprintf("k-%d", g.made/4+g.rand.IntN(120))
	}
	prefix := g.made / 150 // what is forgotten is soon below all
	if g.chance(5) {
		prefix--
	}
	keys := []string{"k-8", "k-9", "k-10", "k-11", "k-09", "k-9a", "k", "K-100", "9:05", "10:00", "ü", "0", "00"}
	return fmt.Sprintf("%d/%s", prefix, keys[g.rand.IntN(len(keys))])
}

// endRun ends a run that is under way, if there is one.
func (g *generator) endRun(r *reference.Model) *wire.Command {
	c := &wire.EndRun{Job: g.jobName(), Session: g.session(r), Handle: g.rand.Uint64N(3), Fence: r.Granted}
	c.Key = g.jobKey(c.Job)
	if all := reference.Running(r, g.chance(3)); len(all) > 0 && g.chance(95) {
		l := all[g.rand.IntN(len(all))]
		for _, every := range all {
			if every.RunKey == "" && g.oftenEvery && g.chance(60) {
				l = every
			}
		}
		c.Job, c.Key, c.Session, c.Handle, c.Fence = l.Job, l.RunKey, l.Owner.Session[:], l.Owner.Handle, l.Fence
		if g.chance(3) {
			c.Fence--
		}
	}
	c.Result = []wire.RunResult{wire.RunResult_DONE, wire.RunResult_FAILED, wire.RunResult_FAILED, wire.RunResult_FAILED, wire.RunResult_NOT_STARTED}[g.rand.IntN(5)]
	if g.chance(30) {
		c.Detail = strings.Repeat("d", 1+g.rand.IntN(3))
	}
	switch c.Trace = g.trace(); g.rand.IntN(120) {
	case 0:
		c.Result = wire.RunResult(g.rand.Int32N(9)) - 1
	case 1:
		c.Detail = strings.Repeat("d", reference.MaxRunDetail+g.rand.IntN(2))
	case 2:
		c.Detail = "a\x00b"
	case 3:
		c.Job = g.name()
	case 4:
		c.Key = g.name()
	case 5:
		c.Session = c.Session[:g.rand.IntN(17)]
	}
	return &wire.Command{Op: &wire.Command_EndRun{EndRun: c}}
}

// deleteJob deletes a job, sometimes one that may be deleted.
func (g *generator) deleteJob(r *reference.Model) *wire.Command {
	c := &wire.DeleteJob{Job: g.jobName()}
	if g.chance(3) {
		c.Job = g.name()
	}
	return &wire.Command{Op: &wire.Command_DeleteJob{DeleteJob: c}}
}

// jobLog makes the commands of logs that are nearly of jobs alone. In some, sessions live long and runs hardly end, so that
// all keys are in use. In others there are many short periods.
type jobLog struct {
	*generator
	crowded bool
	storm   int // requests for one key that are still to be made
	key     [2]string
}

// newJobLog returns a generator of the logs of jobs.
func newJobLog(seed uint64) *jobLog {
	c := &jobLog{generator: newGenerator(seed), crowded: seed%3 == 0}
	c.mix, c.oftenEvery = c.command, seed%3 == 1
	return c
}

func (c *jobLog) command(r *reference.Model, inc wire.ID) *wire.Command {
	switch n := c.rand.IntN(1000); {
	case c.storm > 0 && n < 600: // many wait for one key
		c.storm--
		run := c.runJob(r)
		op := run.GetRunJob()
		if op.Job, op.Key = c.key[0], c.key[1]; op.Every != 0 {
			op.Every, op.Attempts = 0, c.rand.Uint32N(3)
		}
		return run
	case n < 10:
		c.storm, c.key = 5+c.rand.IntN(20), [2]string{c.jobName(), "k-" + string(rune('0'+c.rand.IntN(10)))}
		return c.runJob(r)
	case n < 100:
		return &wire.Command{Op: &wire.Command_Renew{Renew: &wire.Renew{}}}
	case n < 120:
		return c.renewSession(r)
	case n < 130:
		return c.lockAcross(r)
	case n < 140:
		return c.generator.command(r, inc)
	case n < 145:
		return c.raise(r)
	}
	command := c.jobCommand(r, inc)
	switch op := command.GetOpenSession(); {
	case op != nil && (c.crowded || c.chance(50)) && op.Ttl > 0 && op.Ttl <= 3*second:
		op.Ttl *= 5
	case c.crowded && (command.GetEndRun() != nil || command.GetCloseSession() != nil) && c.chance(85):
		run := c.runJob(r)
		if op := run.GetRunJob(); op.Every == 0 {
			op.Job, op.Key = manyKeys, c.jobKey(manyKeys)
		}
		return run
	}
	return command
}
