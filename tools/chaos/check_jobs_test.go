//go:build linux

package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/conclave-go/conclave"
)

const oneKey = "p/job/1 7"

// runs adds the run of a key of a job with a limit of attempts; 0: without.
func (s *story) runs(hold string, limit int, call, begun int64, fence uint64) {
	s.add(hold, call, begun, record{Op: opRun, Name: oneKey, Hold: hold, Limit: limit}, resultOK, fence)
}

// ran adds the end of a run.
func (s *story) ran(hold, as string, call, returned int64, fence uint64, result string) {
	s.add(hold, call, returned, record{Op: opEnd, Name: oneKey, Hold: hold, Fence: fence, Value: as}, result, 0)
}

// refusedAs adds a call of Once that finds the key closed by a run.
func (s *story) refusedAs(why string, limit int, call, returned int64, fence uint64) {
	s.add("r", call, returned, record{Op: opRun, Name: oneKey, Hold: fmt.Sprint("r", call), Limit: limit}, resultClosed, fence).value = why
}

func TestCheckJobs(t *testing.T) {
	expectTales(t, []tale{
		{"done, and closed", "", func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.ran("a", runDone, 4, 6, 1, resultOK)
			s.refusedAs(runDone, 0, 2, 6, 1)
		}},
		{"failed, run by another one, and done", "", func(s *story) {
			s.runs("a", 2, 1, 2, 1)
			s.ran("a", runFailed, 4, 6, 1, resultOK)
			s.runs("b", 2, 2, 7, 2)
			s.ran("b", runDone, 8, 9, 2, resultOK)
			s.refusedAs(runDone, 2, 2, 10, 2)
		}},
		{"lost at its end, and recorded all the same", "", func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.ran("a", runDone, 4, 6, 1, resultLost)
			s.refusedAs(runDone, 0, 7, 8, 1)
		}},
		{"lost at its end, and run by another one", "", func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.ran("a", runDone, 4, 6, 1, resultLost)
			s.runs("b", 0, 2, 7, 2)
			s.ran("b", runDone, 8, 9, 2, resultOK)
		}},
		{"killed, with no attempt left", "", func(s *story) {
			s.runs("a", 1, 1, 2, 1)
			s.refusedAs("lost", 1, 2, 6, 1)
			s.refusedAs("lost", 1, 7, 8, 1)
		}},
		{"two at a time, seen by a check", notLinearizable, func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.runs("b", 0, 2, 4, 2)
			s.add("a", 5, 6, record{Op: opCheck, Name: oneKey, Hold: "a", Fence: 1}, resultOK, 1)
		}},
		{"two at a time, seen by the end", notLinearizable, func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.runs("b", 0, 2, 4, 2)
			s.ran("a", runFailed, 5, 6, 1, resultOK)
		}},
	})
}

func TestCheckJobs_Again(t *testing.T) {
	expectTales(t, []tale{
		{"to its end twice", "more than once", func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.ran("a", runDone, 3, 4, 1, resultOK)
			s.runs("b", 0, 2, 5, 2)
			s.ran("b", runDone, 6, 7, 2, resultOK)
		}},
		{"after it was done", "runs again", func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.ran("a", runDone, 3, 4, 1, resultOK)
			s.runs("b", 0, 2, 5, 2)
		}},
		{"after a refusal said that it was done", "runs again", func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.ran("a", runDone, 3, never, 1, resultUnknown)
			s.refusedAs(runDone, 0, 4, 6, 1)
			s.runs("b", 0, 5, 8, 2)
		}},
		{"more often than it may", "want 1 at most", func(s *story) {
			s.runs("a", 1, 1, 2, 1)
			s.ran("a", runFailed, 3, 4, 1, resultOK)
			s.runs("b", 1, 2, 5, 2)
		}},
	})
}

func TestCheckJobs_Closed(t *testing.T) {
	expectTales(t, []tale{
		{"without a run", "did not reach its end", func(s *story) { s.refusedAs(runDone, 0, 1, 2, 1) }},
		{"before the run ended", "did not reach its end", func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.refusedAs(runDone, 0, 3, 4, 1)
			s.ran("a", runDone, 5, 6, 1, resultOK)
		}},
		{"by a run that failed", "did not reach its end", func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.ran("a", runFailed, 3, 4, 1, resultOK)
			s.refusedAs(runDone, 0, 5, 6, 1)
		}},
		{"with attempts left without bound", "without bound", func(s *story) {
			s.runs("a", 0, 1, 2, 1)
			s.ran("a", runFailed, 3, 4, 1, resultOK)
			s.refusedAs(runFailed, 0, 5, 6, 1)
		}},
		{"while it runs", "is running", func(s *story) {
			s.runs("a", 1, 1, 2, 1)
			s.refusedAs("running", 1, 3, 4, 1)
		}},
		{"forgotten, although keys ascend", "is forgotten", func(s *story) { s.refusedAs("forgotten", 1, 3, 4, 0) }},
		{"failed, and it was done", "was done, and not failed", func(s *story) {
			s.runs("a", 1, 1, 2, 1)
			s.ran("a", runDone, 3, 4, 1, resultOK)
			s.refusedAs(runFailed, 1, 5, 6, 1)
		}},
	})
}

func TestRecordedAs(t *testing.T) {
	if err := recordedAs(errGaveUp); err != nil {
		t.Error(err)
	}
	lost := errors.Join(errGaveUp, conclave.ErrLockOwnershipLost)
	if err := recordedAs(lost); classify(opEnd, err) != resultLost {
		t.Error(err)
	}
	closed := &conclave.JobDoneError{Run: conclave.JobRun{Result: conclave.JobDone, Fence: 7}}
	if r := closedBy(fmt.Errorf("once: %w", closed)); classify(opRun, closed) != resultClosed || r.Value != runDone || r.Fence != 7 {
		t.Errorf("%+v", r)
	}
}
