// Package conclavegocron runs the jobs of gocron (github.com/go-co-op/gocron/v2) on one process of
// several, by locks of a conclave group.
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(conclavegocron.NewLocker(node)))
//
// A [Locker] takes a lock for each run, so that the runs of a job spread over the processes. An
// [Elector] elects one process, which runs all jobs. Both refuse a run that another process has,
// rather than wait: gocron skips it.
//
// [Once] needs no locker: it records which times of a job are done, and runs each once, also if the clocks of the processes
// differ or one of them dies during the run.
//
// With the others, gocron passes a job neither the fence of its lock nor the news that the lock was lost.
// [Locker.Task] and [Elector.Task] do both: they wrap the function of a job so that its context
// carries the fence ([conclave.FenceFromContext]) and is cancelled on a loss. A job without
// them runs on after a loss, beside the run of another process.
//
// What gocron cannot promise with any locker: a job runs exactly once at each of its times. It
// does not run if no process is up at that time, if the group has no quorum, or if a process
// dies during the run. It runs twice if the clocks of two processes differ by more than the job
// takes and [HoldFor] covers, or if a process is paused and another one takes the lock; the
// resource that checks the fence refuses the former one.
//
// The package is a module of its own: programs without it link no gocron.
package conclavegocron
