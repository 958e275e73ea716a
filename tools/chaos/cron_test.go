//go:build linux

package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var cronProgram = flag.String("conclave", "", "`file` of the program conclave, which TestCron runs on three machines")

// insideCron is the environment variable with which TestCron starts itself in its namespaces: the directory for its files.
const insideCron = "CONCLAVE_CHAOS_CRON"

// The line of the crontab of each machine. Where cron has minutes, the test has periods of 10 s.
const (
	cronPeriod = 10 * time.Second
	cronLine   = `conclave job nightly "$(date -u +%FT%T | cut -c1-18)0Z" --ttl 3s --grace 1s FLAGS -- ./job.sh`
)

const cronScript = `#!/bin/sh
echo "begin $CONCLAVE_KEY $MACHINE $CONCLAVE_FENCE" >>job.log
sleep 2
echo "end $CONCLAVE_KEY $MACHINE $CONCLAVE_FENCE" >>job.log
`

// Three agents on three machines, each of which has a network namespace, and conclave job in the crontab of each. No cron daemon
// is needed: a loop stands for it that starts the line on all machines at the begin of a period. The command runs once for each
// key, also when what runs it is killed in the middle.
//
//	go -C cmd/conclave build -o /tmp/conclave .
//	go -C tools/chaos test -run Cron -v -conclave /tmp/conclave .
func TestCron(t *testing.T) {
	if *cronProgram == "" {
		t.Skip("takes a minute, and -conclave names no program")
	}
	if err := canRun(); err != nil {
		t.Skip(err)
	}
	if dir := os.Getenv(insideCron); dir != "" {
		newCron(t, dir).run()
		return
	}
	program, err := filepath.Abs(*cronProgram)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCron$", "-test.v", "-conclave="+program)
	cmd.Env = append(os.Environ(), insideCron+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestCron")) {
		t.Error(err)
	}
}

// cron is three machines.
type cron struct {
	*testing.T
	dir, program string
	network      *network
}

func newCron(t *testing.T, dir string) *cron {
	c := &cron{T: t, dir: dir, program: filepath.Join(dir, "conclave")}
	c.must(isolateMounts())
	c.must(os.Symlink(*cronProgram, c.program)) // by the name that the crontab has
	c.must(os.WriteFile(filepath.Join(dir, "job.sh"), []byte(cronScript), 0o755))
	var err error
	c.network, err = newNetwork(3)
	c.must(err)
	for i := range c.network.hosts {
		defer c.startAgent(i)()
	}
	return c
}

func (c *cron) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// startAgent starts the agent of a machine, and returns a function that waits until it is a member.
func (c *cron) startAgent(i int) (await func()) {
	var all []string
	for j := range c.network.hosts {
		all = append(all, c.network.address(j))
	}
	cmd := c.network.command(i, c.program, "agent", "--dir", filepath.Join(c.dir, c.network.namespace(i)), "--bind", all[i],
		"--join", strings.Join(all, ","), "--expect", "3", "--insecure", "--http", "none", "--name", c.network.namespace(i))
	log, err := cmd.StderrPipe()
	c.must(err)
	c.must(cmd.Start())
	open := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if strings.Contains(lines.Text(), "msg=open") {
				close(open)
			}
		}
		_ = cmd.Wait() // it is killed
	}()
	return func() {
		c.Helper()
		select {
		case <-open:
		case <-time.After(openLimit):
			c.Fatalf("the agent of %s is not open", c.network.namespace(i))
		}
	}
}

// entry is a line of a crontab under way.
type entry struct {
	cmd    *exec.Cmd
	errors bytes.Buffer
}

// wait returns the exit code, as a shell has it.
func (e *entry) wait() int {
	_ = e.cmd.Wait() // the state is read from the command
	if status := e.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return e.cmd.ProcessState.ExitCode()
}

// start starts the line on all machines when the next period begins.
func (c *cron) start(flags string) (entries []*entry) {
	time.Sleep(time.Until(time.Now().Truncate(cronPeriod).Add(cronPeriod)))
	for i := range c.network.hosts {
		e := &entry{cmd: c.network.command(i, "sh", "-c", strings.Replace(cronLine, "FLAGS", flags, 1))}
		e.cmd.Dir, e.cmd.Stderr = c.dir, &e.errors
		e.cmd.Env = append(os.Environ(), "PATH="+c.dir+":"+os.Getenv("PATH"), "MACHINE="+c.network.namespace(i),
			"CONCLAVE_INSECURE=true", "CONCLAVE_ADDR="+c.network.address(i))
		c.must(e.cmd.Start())
		entries = append(entries, e)
	}
	return entries
}

// job returns what the job has logged, line by line.
func (c *cron) job() []string {
	text, _ := os.ReadFile(filepath.Join(c.dir, "job.log")) // there is none before the first run
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// runner waits until a command runs, and returns its machine.
func (c *cron) runner(before int) int {
	for deadline := time.Now().Add(openLimit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if lines := c.job(); len(lines) > before {
			i, err := strconv.Atoi(strings.TrimPrefix(strings.Fields(lines[before])[2], "m"))
			c.must(err)
			return i - 1
		}
	}
	c.Fatal("no command runs")
	return 0
}

// kill kills the processes of a machine whose command line contains a text.
func (c *cron) kill(i int, containing string) {
	out, err := exec.Command("ip", "netns", "pids", c.network.namespace(i)).Output()
	c.must(err)
	for text := range strings.FieldsSeq(string(out)) {
		line, _ := os.ReadFile(filepath.Join("/proc", text, "cmdline")) // it may have ended
		if pid, err := strconv.Atoi(text); err == nil && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), containing) {
			c.must(syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}

func (c *cron) run() {
	const jobItself, everything = "conclave job", ""
	c.period("nothing is killed", "", nil, []int{0, 122, 122}, 1, 1)
	c.period("conclave job is killed", "", func(i int) { c.kill(i, jobItself) }, []int{0, 122, 137}, 2, 1)
	var dead int
	c.period("the machine dies, with its agent", "", func(i int) { dead = i; c.kill(i, everything) }, []int{0, 122, 137}, 2, 1)
	c.startAgent(dead)()
	c.period("conclave job is killed, with --attempts 1", "--attempts 1", func(i int) { c.kill(i, jobItself) }, []int{122, 122, 137}, 1, 0)
	c.period("nothing is killed again", "", nil, []int{0, 122, 122}, 1, 1)
}

// period runs the line once on each machine. It wants exit codes, in ascending order, and how often the command begins and ends.
func (c *cron) period(what, flags string, fault func(runner int), codes []int, begins, ends int) {
	before := 0
	if _, err := os.Stat(filepath.Join(c.dir, "job.log")); err == nil {
		before = len(c.job())
	}
	entries := c.start(flags)
	if fault != nil {
		fault(c.runner(before))
	}
	report := what + ":\n"
	var got []int
	for i, e := range entries {
		code := e.wait()
		got = append(got, code)
		report += fmt.Sprintf("  %s: exit code %d  %s\n", c.network.namespace(i), code, strings.TrimSpace(e.errors.String()))
	}
	count, keys, fences := make(map[string]int), make(map[string]bool), []uint64(nil)
	for _, line := range c.job()[before:] {
		report += "  job.log: " + line + "\n"
		fields := strings.Fields(line)
		count[fields[0]]++
		keys[fields[1]] = true
		if f, err := strconv.ParseUint(fields[3], 10, 64); err == nil && fields[0] == "begin" {
			fences = append(fences, f)
		}
	}
	c.Log(report)
	slices.Sort(got)
	if !slices.Equal(got, codes) || count["begin"] != begins || count["end"] != ends || len(keys) != 1 || !slices.IsSorted(fences) {
		c.Errorf("%s: got exit codes %v, want %v; %d begins and %d ends, want %d and %d; keys %v, fences %v", what, got, codes, count["begin"], count["end"], begins, ends, keys, fences)
	}
}
