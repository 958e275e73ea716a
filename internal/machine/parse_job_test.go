package machine

import "github.com/conclave-go/conclave/internal/wire"

// parseJob reads
//
//	run-job j k s/1 attempts=2 keep=1s
//	run-job j '' s/1 every=1m
//	end-run j k s/1 fence=7 failed detail=why trace=t
//	delete-job j
//
// where j is the job and k the key. The result is done unless it is named.
func parseJob(a *arguments, c *wire.Command) {
	switch a.words[0] {
	case "run-job":
		op := &wire.RunJob{
			Job: a.name(1), Key: a.name(2), Attempts: uint32(a.number("attempts")), Keep: a.duration("keep", 0), Every: a.duration("every", 0),
		}
		op.Session, op.Handle = a.owner(3)
		c.Op = &wire.Command_RunJob{RunJob: op}
	case "end-run":
		op := &wire.EndRun{Job: a.name(1), Key: a.name(2), Fence: a.number("fence"), Detail: string(a.text("detail")), Trace: a.text("trace")}
		op.Session, op.Handle = a.owner(3)
		results := map[int32]wire.RunResult{
			0: wire.RunResult_DONE, 1: wire.RunResult_FAILED, 2: wire.RunResult_NOT_STARTED, 3: wire.RunResult_LOST,
			4: wire.RunResult_RUNNING, 5: wire.RunResult_FORGOTTEN, 6: wire.RunResult_RUN_UNSPECIFIED, 7: 99,
		}
		op.Result = results[a.one("done", "failed", "not-started", "lost", "running", "forgotten", "unspecified", "unheard-of")]
		c.Op = &wire.Command_EndRun{EndRun: op}
	case "delete-job":
		c.Op = &wire.Command_DeleteJob{DeleteJob: &wire.DeleteJob{Job: a.name(1)}}
	}
}
