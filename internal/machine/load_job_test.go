package machine

import (
	"errors"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// jobDisk is a sound state with jobs: a key that runs and is awaited, one that is done, one that has failed and is delayed, one
// of which a portion of requests is left, one that was not started, and periods.
func jobDisk() disk {
	d := sharedDisk()
	d["m"] = machineAt(wire.LevelJobs)
	d["Jj"] = marshalled(&wire.JobState{Forgets: true, Floor: "k-1", Periods: 7})
	d["jj\x00k-10"] = soundRunLock(30)
	d["rj\x00k-10"] = soundRun(&wire.RunState{Result: wire.RunResult_RUNNING, Attempts: 2, Fence: 30, Keep: MinKeep})
	d["wjj\x00k-10\x00"+be(12)] = soundRunWaiter(20, &wire.WaiterState{Attempts: 2, Keep: MaxKeep})
	d["rj\x00k-9"] = soundRun(&wire.RunState{Result: wire.RunResult_DONE, Attempts: 1, Fence: 25, Ended: 2 * second, Detail: "fine"})
	d["jj\x00k-8"] = marshalled(&wire.LockState{DelayUntil: 9 * second})
	d["rj\x00k-8"] = soundRun(&wire.RunState{Result: wire.RunResult_FAILED, Attempts: 3, Fence: 26, Ended: 2 * second})
	d["rj\x00k-7"] = soundRun(&wire.RunState{Result: wire.RunResult_DONE, Attempts: 1, Fence: 27, Ended: 2 * second})
	d["wjj\x00k-7\x00"+be(13)] = soundRunWaiter(21, &wire.WaiterState{})
	d["wjj\x00k-7\x00"+be(14)] = soundRunWaiter(22, &wire.WaiterState{Attempts: 9})
	d["jj\x00"] = soundRunLock(31)
	d["rj\x00\x00"+be(5)] = soundRun(&wire.RunState{Result: wire.RunResult_LOST, Attempts: 1, Fence: 28, Ended: 2 * second, Every: second})
	d["rj\x00\x00"+be(7)] = soundRun(&wire.RunState{Result: wire.RunResult_RUNNING, Attempts: 1, Fence: 31, Every: MaxEvery})
	d["wjj\x00\x00"+be(15)] = soundRunWaiter(23, &wire.WaiterState{Every: MinEvery})
	return d
}

func soundRunLock(fence uint64) []byte {
	return marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: fence})
}

// soundRun encodes a run of the session of the sound state, begun after a second.
func soundRun(st *wire.RunState) []byte {
	st.Session, st.Member = []byte(soundSession), 1
	if st.Started == 0 {
		st.Started = second
	}
	return marshalled(st)
}

// soundRunWaiter encodes a request for a run by the process of the sound state.
func soundRunWaiter(seq uint64, st *wire.WaiterState) []byte {
	st.Session, st.Incarnation, st.Seq = []byte(soundSession), []byte(soundInc), seq
	return marshalled(st)
}

func runningRun(fence uint64) []byte {
	return soundRun(&wire.RunState{Result: wire.RunResult_RUNNING, Attempts: 1, Fence: fence})
}

func doneRun(st *wire.RunState) []byte {
	st.Result, st.Fence = wire.RunResult_DONE, 29
	if st.Attempts == 0 {
		st.Attempts = 1
	}
	if st.Ended == 0 {
		st.Ended = 2 * second
	}
	return soundRun(st)
}

func TestLoad_RefusesEachViolationOfJobs(t *testing.T) {
	for _, row := range violationsOfJobs {
		t.Run(row.name, func(t *testing.T) {
			d := jobDisk()
			d[row.key] = row.value
			if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
				t.Errorf("Load: %v", err)
			}
		})
	}
}

var violationsOfJobs = []stateRow{
	{"jobs below their level", "m", machineAt(wire.LevelJobs - 1)},
	{"a job without a name", "J", marshalled(&wire.JobState{Periods: 1})},
	{"a job with NUL in its name", "Jx\x00", marshalled(&wire.JobState{Periods: 1})},
	{"a job with too long a name", "J" + strings.Repeat("j", MaxName+1), marshalled(&wire.JobState{Periods: 1})},
	{"a job of which nothing is retained", "Jx", marshalled(&wire.JobState{})},
	{"a job that forgets nothing in particular", "Jx", marshalled(&wire.JobState{Forgets: true})},
	{"a job that does not forget what is below its floor", "Jx", marshalled(&wire.JobState{Periods: 1, Floor: "k"})},
	{"a job with NUL in its floor", "Jx", marshalled(&wire.JobState{Forgets: true, Floor: "k\x00"})},
	{"fewer periods than runs", "Jj", marshalled(&wire.JobState{Periods: 6})},
	{"a run of no job", "rx\x00k", doneRun(&wire.RunState{})},
	{"a run without a key or a number", "rj\x00", doneRun(&wire.RunState{})},
	{"a run without a job", "rj", doneRun(&wire.RunState{})},
	{"a run with NUL in its key", "rj\x00k\x00", doneRun(&wire.RunState{})},
	{"a run with too long a key", "rj\x00" + strings.Repeat("k", MaxName+1), doneRun(&wire.RunState{})},
	{"a run of period 0", "rj\x00\x00" + be(0), doneRun(&wire.RunState{Every: second})},
	{"a run of a period that has not begun", "rj\x00\x00" + be(8), doneRun(&wire.RunState{Every: second})},
	{"a run of a period without its length", "rj\x00\x00" + be(6), doneRun(&wire.RunState{})},
	{"a run of too short a period", "rj\x00\x00" + be(6), doneRun(&wire.RunState{Every: MinEvery - 1})},
	{"a run of too long a period", "rj\x00\x00" + be(6), doneRun(&wire.RunState{Every: MaxEvery + 1})},
	{"two attempts in a period", "rj\x00\x00" + be(6), doneRun(&wire.RunState{Every: second, Attempts: 2})},
	{"a key with a period", "rj\x00x", doneRun(&wire.RunState{Every: second})},
	{"a run to be kept for too short a time", "rj\x00x", doneRun(&wire.RunState{Keep: MinKeep - 1})},
	{"a run to be kept for too long a time", "rj\x00x", doneRun(&wire.RunState{Keep: MaxKeep + 1})},
	{"a run with too long a text", "rj\x00x", doneRun(&wire.RunState{Detail: strings.Repeat("d", wire.MaxRunDetail+1)})},
	{"a run that started later", "rj\x00x", doneRun(&wire.RunState{Started: 6 * second, Ended: 6 * second})},
	{"a run that ended later", "rj\x00x", doneRun(&wire.RunState{Ended: 6 * second})},
	{"a run without a fence", "rj\x00x", soundRun(&wire.RunState{Result: wire.RunResult_DONE, Attempts: 1, Ended: second})},
	{"a run with a fence never granted", "rj\x00x", soundRun(&wire.RunState{Result: wire.RunResult_DONE, Attempts: 1, Fence: 41, Ended: second})},
	{"a run without a session", "rj\x00x", marshalled(&wire.RunState{Result: wire.RunResult_DONE, Attempts: 1, Fence: 29, Ended: second})},
	{"a run without a result", "rj\x00x", soundRun(&wire.RunState{Attempts: 1, Fence: 29, Ended: second})},
	{"a run that was not started", "rj\x00x", soundRun(&wire.RunState{Result: wire.RunResult_NOT_STARTED, Attempts: 1, Fence: 29, Ended: second})},
	{"a run that runs without a lock", "rj\x00x", runningRun(29)},
	{"a run that runs and has ended", "rj\x00k-10", soundRun(&wire.RunState{Result: wire.RunResult_RUNNING, Attempts: 1, Fence: 30, Ended: second})},
	{"a run that runs under another fence", "rj\x00k-10", runningRun(29)},
	{"a run that runs and has no attempt", "rj\x00k-10", soundRun(&wire.RunState{Result: wire.RunResult_RUNNING, Fence: 30})},
	{"a key that has not run and is not awaited", "rj\x00x", soundRun(&wire.RunState{Result: wire.RunResult_FAILED, Fence: 29, Ended: second})},
	{"a held lock of a run that is done", "rj\x00k-10", doneRun(&wire.RunState{})},
	{"a delayed lock of a key that runs", "jj\x00k-10", marshalled(&wire.LockState{DelayUntil: 9 * second})},
	{"a lock of a key that is not retained", "jj\x00x", soundRunLock(29)},
	{"a lock-delay of a key that is not retained", "jj\x00x", marshalled(&wire.LockState{DelayUntil: 9 * second})},
	{"a lock of no job", "jx\x00x", marshalled(&wire.LockState{DelayUntil: 9 * second})},
	{"a lock without a key", "jj", marshalled(&wire.LockState{DelayUntil: 9 * second})},
	{"a run held twice", "jj\x00k-10", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 2, Fence: 30})},
	{"a run with a label", "jj\x00k-10", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 30, Label: "me"})},
	{"a run that ends by MaxHold", "jj\x00k-10", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 30, Ends: 9 * second})},
	{"a run that lingers", "jj\x00k-10", marshalled(&wire.LockState{Session: []byte(soundSession), Holds: 1, Fence: 30, Lingering: true})},
	{"a waiter for a key that is not retained", "wjj\x00x\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{})},
	{"a waiter for a key that is free", "rj\x00k-7", soundRun(&wire.RunState{Result: wire.RunResult_FAILED, Attempts: 1, Fence: 27, Ended: second})},
	{"a waiter for a key with a period", "wjj\x00k-10\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{Every: second})},
	{"a waiter for a period without its length", "wjj\x00\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{})},
	{"a waiter for too short a period", "wjj\x00\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{Every: MinEvery - 1})},
	{"a waiter for a period with attempts", "wjj\x00\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{Every: second, Attempts: 1})},
	{"a waiter for a run to be kept too long", "wjj\x00k-10\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{Keep: MaxKeep + 1})},
	{"a waiter for a shared run", "wjj\x00k-10\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{Shared: true})},
	{"a waiter for a run with a label", "wjj\x00k-10\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{Label: "me"})},
	{"a waiter for a lock with attempts", "wlx\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{Attempts: 1})},
	{"a waiter for permits with a period", "wSx\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{Permits: 2, Every: second})},
}

func TestLoad_AcceptsJobs(t *testing.T) {
	for _, row := range []stateRow{
		{"as it is", "m", machineAt(wire.LevelJobs)},
		{"a job that has forgotten all", "Jx", marshalled(&wire.JobState{Forgets: true, Floor: "k"})},
		{"a job whose periods were not started", "Jx", marshalled(&wire.JobState{Periods: 3})},
		{"a retained key below the floor", "rj\x00k-0", doneRun(&wire.RunState{Keep: MaxKeep})},
		{"a key that has not run, behind a lock-delay", "rj\x00k-8", soundRun(&wire.RunState{Result: wire.RunResult_FAILED, Fence: 26, Ended: second})},
		{"the longest key and text", "rj\x00" + strings.Repeat("k", MaxName), doneRun(&wire.RunState{Detail: strings.Repeat("d", wire.MaxRunDetail)})},
		{"another period", "rj\x00\x00" + be(6), doneRun(&wire.RunState{Every: MinEvery})},
		{"a waiter behind a closed key", "wjj\x00k-9\x00" + be(20), soundRunWaiter(24, &wire.WaiterState{Attempts: 2})},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := jobDisk()
			d[row.key] = row.value
			checkLoad(t, d, "")
		})
	}
}

// What is damaged at its end is refused.
func TestLoad_DamagedJobs(t *testing.T) {
	for key := range jobDisk() {
		if !strings.ContainsRune("jJr", rune(key[0])) {
			continue
		}
		d := jobDisk()
		d[key] = append(d[key], 0xff)
		if m, err := Load(d.pairs()); !errors.Is(err, ErrCorrupt) || m != nil {
			t.Errorf("Load with %q damaged: %v", key, err)
		}
	}
}
