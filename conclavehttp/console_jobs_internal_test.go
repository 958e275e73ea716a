package conclavehttp

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// A job is shown with its last runs, those of a process or session if they are asked for, and with its last success whatever process it was.
func TestJobOf(t *testing.T) {
	mine, theirs := conclave.SessionID{1}, conclave.SessionID{2}
	info := conclave.JobInfo{Name: "report"}
	for i, r := range []conclave.JobResult{conclave.JobRunning, conclave.JobFailed, conclave.JobDone, conclave.JobLost, conclave.JobDone, conclave.JobFailed} {
		run := conclave.JobRun{Result: r, Ended: time.Duration(i) * time.Minute, Session: mine}
		if i%2 == 0 {
			run.Session = theirs
		}
		info.Runs = append(info.Runs, run)
	}
	all := jobOf(info, ownership{})
	if len(all.Last) != maxRuns || all.More != 2 || !all.Succeeded || all.Success != 2*time.Minute {
		t.Errorf("%+v", all)
	}
	own := jobOf(info, ownership{session: mine})
	if len(own.Last) != 3 || own.More != 0 || own.Last[0].Result != conclave.JobFailed || !own.Succeeded || own.Success != 2*time.Minute {
		t.Errorf("%+v", own)
	}
	if j := jobOf(info, ownership{session: conclave.SessionID{3}}); j != nil {
		t.Errorf("a session that has run nothing: %+v", j)
	}
	if j := jobOf(conclave.JobInfo{Name: "new"}, ownership{}); j == nil || j.Succeeded || len(j.Last) != 0 {
		t.Errorf("without runs: %+v", j)
	}
}
