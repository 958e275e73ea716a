//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// outsideMain checks that the tool can run here, and starts it again in namespaces
// of its own. The kernel ends every process in them, and removes the networks and
// mounts, when the first process in them has ended, so that nothing can be left
// behind except the directory.
func outsideMain(args []string) int {
	o, err := parseOptions(args, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return fail(err)
	case o.list:
		printNemeses(os.Stdout)
		return 0
	case o.check != "":
		return checkAgain(o.check)
	}
	if err := canRun(); err != nil {
		return fail(err)
	}
	removeLeftovers(os.TempDir())
	if o.dir, err = makeDir(o.dir); err != nil {
		return fail(err)
	}
	status, err := runInside(o)
	if err != nil {
		return fail(err)
	}
	if (status == 0 || status == exitInterrupted) && !o.keep {
		err = os.RemoveAll(o.dir)
	} else {
		err = os.Remove(filepath.Join(o.dir, ownerFile)) // no leftover: the next run keeps it
		fmt.Printf("histories, logs and data: %s\n", o.dir)
	}
	if err != nil {
		return fail(err)
	}
	return status
}

func fail(err error) int {
	fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
	return exitUsage
}

// runInside runs the tool in its namespaces and returns its exit status.
func runInside(o options) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	// The child is killed when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, o.arguments()...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Setpgid:    true, // an interrupt comes from this process only
		Pdeathsig:  syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start in new namespaces: %w: this needs CAP_SYS_ADMIN, and a sandbox or container that permits namespaces", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case <-signals:
			_ = cmd.Process.Signal(os.Interrupt) // it has ended if that fails
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, err
			}
			if status := cmd.ProcessState.ExitCode(); status >= 0 {
				return status, nil
			}
			return 0, fmt.Errorf("ended by %v", cmd.ProcessState)
		}
	}
}

// canRun reports everything that is missing, with what to do about it.
func canRun() error {
	var faults []error
	if os.Geteuid() != 0 {
		faults = append(faults, errors.New("not root: namespaces and nftables need root; run it with sudo"))
	} else if err := hasCapabilities(); err != nil {
		faults = append(faults, err)
	}
	for program, pkg := range map[string]string{"ip": "iproute2", "nft": "nftables"} {
		if _, err := exec.LookPath(program); err != nil {
			faults = append(faults, fmt.Errorf("program %s not found: apt-get install %s", program, pkg))
		}
	}
	return errors.Join(faults...)
}

func hasCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for name, number := range map[string]uint{"CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN} {
		if data[0].Effective&(1<<number) == 0 {
			return fmt.Errorf("root without %s: run it outside of the container, or give the container that capability", name)
		}
	}
	return nil
}

const (
	dirPrefix = "conclave-chaos-"
	// ownerFile names the process whose directory it is.
	ownerFile = "owner"
)

// makeDir makes the directory of a run.
func makeDir(dir string) (string, error) {
	var err error
	if dir == "" {
		dir, err = os.MkdirTemp("", dirPrefix)
	} else if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("invalid -dir: %s is not empty", dir)
	}
	return dir, os.WriteFile(filepath.Join(dir, ownerFile), []byte(processName(os.Getpid())), 0o644)
}

// removeLeftovers removes the directories of runs whose process has ended without
// removing them. A kept directory has no owner.
func removeLeftovers(in string) {
	dirs, err := filepath.Glob(filepath.Join(in, dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		owner, err := os.ReadFile(filepath.Join(dir, ownerFile))
		if err != nil {
			continue
		}
		pid, _, _ := strings.Cut(string(owner), " ")
		if n, err := strconv.Atoi(pid); err == nil && processName(n) == string(owner) {
			continue // it runs
		}
		fmt.Fprintf(os.Stderr, "chaos: removing %s, left behind by a run that was killed\n", dir)
		_ = os.RemoveAll(dir) // the next run tries again
	}
}

// processName is a process ID and when the process started, since IDs are used again.
func processName(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, fields, _ := strings.Cut(string(stat), ") ")
	const started = 19 // behind the name
	const zombie = "Z"
	if f := strings.Fields(fields); len(f) > started && f[0] != zombie {
		return fmt.Sprintf("%d %s", pid, f[started])
	}
	return ""
}
