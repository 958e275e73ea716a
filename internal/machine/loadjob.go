package machine

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// Reading jobs, what they retain, and the locks of their runs.

func (ld *loader) job(rest string, value []byte) error {
	var st wire.JobState
	if err := proto.Unmarshal(value, &st); err != nil {
		return err
	}
	switch {
	case !isName(rest):
		return errShape
	case ld.m.jobs.byName[rest] != nil:
		return errTwice
	case st.Forgets != (st.Floor != ""), st.Forgets && !isName(st.Floor):
		return errRange
	}
	ld.m.jobs.add(&job{name: rest, forgets: st.Forgets, floor: st.Floor, periods: st.Periods})
	return nil
}

// isName reports whether s can be the name of a job, or a key.
func isName(s string) bool {
	return s != "" && len(s) <= MaxName && strings.IndexByte(s, 0) < 0 && utf8.ValidString(s)
}

func (ld *loader) run(rest string, value []byte) error {
	st := new(wire.RunState)
	if err := proto.Unmarshal(value, st); err != nil {
		return err
	}
	session, ok := wire.IDFrom(st.Session)
	name, id, found := strings.Cut(rest, "\x00")
	r := &run{
		result: st.Result, attempts: st.Attempts, fence: st.Fence, session: session, member: st.Member, client: st.Client,
		started: st.Started, ended: st.Ended, detail: st.Detail, keep: st.Keep, every: st.Every,
	}
	switch {
	case !ok, !found, id == "":
		return errShape
	case len(id) == 9 && id[0] == 0:
		if r.period = binary.BigEndian.Uint64([]byte(id[1:])); r.period == 0 {
			return errRange
		}
	case !isName(id):
		return errShape
	default:
		r.key = id
	}
	if r.key != "" && r.every != 0 || r.key == "" && (r.every < MinEvery || r.every > MaxEvery || r.attempts != 1) ||
		r.keep != 0 && (r.keep < MinKeep || r.keep > MaxKeep) || len(r.detail) > wire.MaxRunDetail || !utf8.ValidString(r.detail) {
		return errRange
	}
	if !r.isSound() {
		return errRange
	}
	ld.runs = append(ld.runs, pending[run, string]{of: r, state: name})
	return nil
}

// isSound reports whether a machine can have recorded the result with what belongs to it.
func (r *run) isSound() bool {
	switch r.result {
	case wire.RunResult_RUNNING:
		return r.ended == 0 && r.attempts > 0 && r.detail == "" && !r.session.IsZero()
	case wire.RunResult_DONE, wire.RunResult_LOST:
		if r.attempts == 0 || r.result == wire.RunResult_LOST && r.detail != "" {
			return false
		}
	case wire.RunResult_FAILED:
	default:
		return false
	}
	return r.ended >= r.started && !r.session.IsZero()
}

// linkJobs gives jobs the runs that they retain, which were read in the order of the keys and of the periods.
func (ld *loader) linkJobs() error {
	m := ld.m
	for _, p := range ld.runs {
		r := p.of
		r.job = m.jobs.byName[p.state]
		switch last := r.job.find(""); {
		case !(jobRuns{m}).hasJobs(), r.started < 0, r.started > m.now, r.ended < 0, r.ended > m.now, r.fence == 0, r.fence > m.fence():
			return fmt.Errorf("run of %q: %w", p.state, errRange)
		case r.job == nil:
			return fmt.Errorf("run of %q: %w", p.state, errLoose)
		case r.job.forgets && r.key == r.job.floor:
			return fmt.Errorf("run of %q: %w", p.state, errRange)
		case r.key != "" && r.job.find(r.key) != nil:
			return fmt.Errorf("run of %q: %w", p.state, errTwice)
		case r.key == "" && (r.period > r.job.periods || last != nil && last.period >= r.period):
			return fmt.Errorf("run of %q: %w", p.state, errRange)
		case r.key == "" && len(r.job.regular) >= MaxRuns, r.key != "" && len(r.job.keyed) >= MaxRuns:
			return fmt.Errorf("runs of %q: %w", p.state, errRange)
		}
		jobRuns{m}.addRun(r)
	}
	return nil
}

// linkJobLock counts a lock with its job, and checks that what it stands for is retained.
func (ld *loader) linkJobLock(l *lock) error {
	name, key := jobOf(l.name())
	j := ld.m.jobs.byName[name]
	switch {
	case j == nil, key != "" && j.find(key) == nil:
		return errLoose
	case !strings.Contains(l.name(), "\x00"), strings.IndexByte(key, 0) >= 0:
		return errShape
	case l.owner != nil && (jobRuns{ld.m}).running(l) == nil:
		return errLoose
	case l.owner != nil && jobRuns{ld.m}.running(l).session != l.owner.id:
		return errLoose
	}
	if j.locks++; key != "" {
		j.find(key).lock = l
	}
	return nil
}

// checkJobs checks that what runs has its lock, that each job has a reason to exist, and that each waiter at the head of a
// queue has to wait or is answered by the next entries.
func (ld *loader) checkJobs() error {
	m := ld.m
	for name, l := range m.jobs.locks.byName { // order: that of the heap is by position, whatever it is
		if err := ld.linkJobLock(l); err != nil {
			return fmt.Errorf("run %q: %w", name, err)
		}
		head := l.head()
		switch {
		case l.owner != nil, l.delayUntil != 0:
		case head == nil, !(jobRuns{m}).isClosedTo(head):
			return fmt.Errorf("run %q: %w", name, errRange)
		default:
			sharing{m}.sharedBy(l)
			m.portions.Push(l)
		}
	}
	for name, j := range m.jobs.byName { // order: shows in an error only
		if !(jobRuns{m}).hasJobs() || j.locks == 0 && len(j.keyed)+len(j.regular) == 0 && !j.forgets && j.periods == 0 {
			return fmt.Errorf("job %q: %w", name, errRange)
		}
		for _, runs := range [][]*run{j.keyed, j.regular} {
			for _, r := range runs {
				l := cmp.Or(r.lock, m.jobs.locks.byName[jobName(name, r.key)])
				switch {
				case r.result == wire.RunResult_RUNNING && (l == nil || l.owner == nil || l.fence != r.fence):
					return fmt.Errorf("run %q of %q: %w", r.key, name, errLoose)
				case r.attempts == 0 && l == nil:
					return fmt.Errorf("run %q of %q: %w", r.key, name, errRange)
				}
			}
		}
	}
	return nil
}

// linkTerms gives a waiter the terms of its request for a run.
func (ld *loader) linkTerms(w *waiter, st *wire.WaiterState) error {
	if w.lock == nil || !w.lock.isJob() {
		if st.Attempts != 0 || st.Keep != 0 || st.Every != 0 {
			return errRange
		}
		return nil
	}
	w.terms = &terms{st.Attempts, st.Keep, st.Every}
	_, key := jobOf(w.lock.name())
	if (key == "") != (st.Every != 0) || st.Every != 0 && (st.Every < MinEvery || st.Every > MaxEvery || st.Attempts != 0) ||
		st.Keep != 0 && (st.Keep < MinKeep || st.Keep > MaxKeep) || w.label != "" || w.lingering || w.shared || w.maxHold != 0 || len(w.value) > 0 {
		return errRange
	}
	return nil
}
