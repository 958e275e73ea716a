//go:build unix

package main

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/conclave-go/conclave"
)

func lastRun(t *testing.T, n *conclave.Node, job string) conclave.JobRun {
	t.Helper()
	info, err := n.Job(job).Info(within(t))
	must0(t, err)
	if len(info.Runs) == 0 {
		t.Fatalf("%+v", info)
	}
	return info.Runs[0]
}

func TestJob_RunsAKeyOnce(t *testing.T) {
	n := member(t, "")
	echo := `echo "$CONCLAVE_JOB $CONCLAVE_KEY $CONCLAVE_FENCE"; cat`
	r := conclaveAt(n, "job", "nightly", "2026-11-25", "--", "sh", "-c", echo)
	want(t, r, 0, "")
	run := lastRun(t, n, "nightly")
	if !strings.HasPrefix(r.out, "nightly 2026-11-25 "+run.Fence.String()) || !strings.Contains(r.out, "from standard input") || run.Result != conclave.JobDone {
		t.Errorf("%+v, %+v", r, run)
	}
	again := conclaveAt(n, "job", "nightly", "2026-11-25", "--", "sh", "-c", echo)
	want(t, again, 122, "the key is closed: it ran to its end")
	if again.out != "" {
		t.Errorf("it runs again: %s", again.out)
	}
	want(t, conclaveAt(n, "job", "nightly", "2026-11-26", "--", "true"), 0, "")
}

func TestJob_ExitCodes(t *testing.T) {
	n := member(t, "")
	want(t, conclaveAt(n, "job", "a", "1", "--", "sh", "-c", "exit 7"), 7, "")
	if r := lastRun(t, n, "a"); r.Result != conclave.JobFailed || r.Error != "exit code 7" {
		t.Errorf("%+v", r)
	}
	want(t, conclaveAt(n, "job", "a", "1", "--", "conclave-no-such-command"), 127, "not found")
	if r := lastRun(t, n, "a"); r.Result != conclave.JobFailed || r.Attempt != 2 || !strings.Contains(r.Error, "not found") {
		t.Errorf("%+v", r)
	}
	want(t, conclaveAt(n, "job", "a", "1", "--attempts", "2", "--", "true"), 122, "attempt 2 was the last one")
	want(t, conclaveAt(n, "job", "a", "1", "--", "true"), 0, "")
	for _, args := range [][]string{
		{"a"}, {"a", "1"}, {"a", "--", "true"}, {"a", "1", "true"}, {"a", "1", "2", "--", "true"}, {"--", "a", "1"},
		{"a", "1", "--attempts", "-1", "--", "true"}, {"a", "1", "--keep", "1us", "--", "true"}, {"a", "1", "--grace", "2m", "--", "true"},
	} {
		want(t, conclaveAt(n, append([]string{"job"}, args...)...), 125, "")
	}
	if r := lastRun(t, n, "a"); r.Attempt != 3 {
		t.Errorf("%+v", r)
	}
}

// From the crontab of several machines the command runs on one of them.
func TestJob_SeveralMachines(t *testing.T) {
	n := member(t, "")
	var all sync.WaitGroup
	codes := make(chan int, 3)
	for range cap(codes) {
		all.Go(func() { codes <- conclaveAt(n, "job", "nightly", "1", "--", "true").code })
	}
	all.Wait()
	close(codes)
	count := make(map[int]int)
	for code := range codes {
		count[code]++
	}
	if count[0] != 1 || count[122] != 2 {
		t.Errorf("exit codes %v", count)
	}
}

func TestJob_Waits(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	p := start(t, "--addr", n.Addr(), "job", "nightly", "1", "--", "sh", "-c", "echo running; exec sleep 600")
	p.line("running")
	want(t, conclaveAt(n, "job", "nightly", "1", "--wait", "5s", "--", "true"), 124, "queued at position 1")
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.wait(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if r := lastRun(t, n, "nightly"); r.Result != conclave.JobFailed || r.Error != "exit code 143" {
		t.Errorf("%+v", r)
	}
	want(t, conclaveAt(n, "job", "nightly", "1", "--", "true"), 0, "")
}

// A run that is lost is not recorded, whatever the command returns.
func TestJob_Lost(t *testing.T) {
	n := member(t, "")
	p := start(t, "--addr", n.Addr(), "job", "nightly", "1", "--grace", "0s", "--", "sh", "-c", `trap "exit 0" TERM; echo running; while :; do sleep 0.05; done`)
	p.line("running")
	must0(t, n.CloseSession(within(t), lastRun(t, n, "nightly").Session))
	if code := p.wait(); code != 123 {
		t.Errorf("exit code %d, want 123", code)
	}
	if r := lastRun(t, n, "nightly"); r.Result != conclave.JobLost {
		t.Errorf("%+v", r)
	}
	must0(t, n.Job("nightly").Once(within(t), "1", func(context.Context, conclave.Fence) error { return nil }))
}
