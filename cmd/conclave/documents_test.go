//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func readDocument(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	must0(t, err)
	return string(text)
}

// shellBlocks returns the commands that a page shows.
func shellBlocks(page string) (blocks []string) {
	for _, block := range strings.Split(page, "```sh\n")[1:] {
		commands, _, _ := strings.Cut(block, "```")
		blocks = append(blocks, commands)
	}
	return blocks
}

// Each command that a page or the systemd unit shows is one: its name, its flags with their values, and how many arguments it has.
func TestDocuments_Commands(t *testing.T) {
	shown := regexp.MustCompile(`(?m)(?:^|[;&|(] ?|ExecStart=\S+/)conclave (\S[^\n;&|()]*)`)
	run := regexp.MustCompile(` -- \S.*`) // a command in the command has flags of its own
	redirect := regexp.MustCompile(`\s\d?>+\S*`)
	for _, name := range []string{"docs/OPERATIONS.md", "docs/CLI.md", "README.md", "docs/systemd/conclave.service"} {
		text := readDocument(t, name)
		if strings.HasSuffix(name, ".md") {
			text = strings.Join(shellBlocks(text), "")
		}
		text = run.ReplaceAllString(strings.ReplaceAll(text, "\\\n", ""), " -- command")
		found := shown.FindAllStringSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s: no command found", name)
		}
		for _, c := range found {
			line := redirect.ReplaceAllString(c[1], "")
			if strings.HasSuffix(line, "$") { // what follows is a command's output
				line = strings.TrimSuffix(line, "$") + "x"
			}
			if err := parses(strings.Fields(line)); err != nil {
				t.Errorf("%s: conclave %s: %v", name, line, err)
			}
		}
	}
}

// commands is the tree with what is added when it runs.
func commands() *cobra.Command {
	root := new(program).root()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	return root
}

// parses reports what is wrong with a command line.
func parses(args []string) error {
	cmd, rest, err := commands().Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	return err
}

// A command that stands in a sentence exists, with its flags. So does each variable.
func TestDocuments_CommandsInText(t *testing.T) {
	inline := regexp.MustCompile("`(?:/)?conclave ([a-z][^`\n]*)`")
	flag := regexp.MustCompile(`(?:^| )--([a-z][a-z-]*)`)
	root := commands()
	known := variables(root)
	for _, name := range []string{"docs/OPERATIONS.md", "docs/CLI.md", "docs/CONSUL.md", "docs/GUIDE.md", "docs/FAQ.md", "docs/FENCING.md", "docs/METRICS.md", "docs/MIGRATING.md", "docs/SEMANTICS.md",
		"README.md", "SECURITY.md", "docs/systemd/conclave.service"} {
		text := readDocument(t, name)
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			cmd, _, err := root.Find(strings.Fields(m[1]))
			if err != nil || cmd == root {
				t.Errorf("%s: conclave %s: %v", name, m[1], err)
				continue
			}
			for _, f := range flag.FindAllStringSubmatch(m[1], -1) {
				if cmd.Flag(f[1]) == nil {
					t.Errorf("%s: conclave %s has no flag --%s", name, cmd.Name(), f[1])
				}
			}
		}
		for _, v := range regexp.MustCompile(`CONCLAVE_[A-Z_]+`).FindAllString(text, -1) {
			if !known[v] && !slices.Contains([]string{"CONCLAVE_FENCE", "CONCLAVE_FENCES", "CONCLAVE_LOCK", "CONCLAVE_SLOTS", "CONCLAVE_JOB", "CONCLAVE_KEY", sessionVariable}, v) {
				t.Errorf("%s: no flag has the variable %s", name, v)
			}
		}
	}
}

// variables are those that commands read.
func variables(cmd *cobra.Command) map[string]bool {
	known := map[string]bool{passwordVariable: true, tokenVariable: true}
	visit := func(f *pflag.Flag) { known[variable(f.Name)] = true }
	cmd.PersistentFlags().VisitAll(visit)
	for _, sub := range cmd.Commands() {
		if sub.Annotations[fromEnvironment] != "" {
			sub.LocalFlags().VisitAll(visit)
		}
	}
	return known
}

// An argument that the documents do not have is one that this test would report.
func TestDocuments_WrongCommands(t *testing.T) {
	for _, line := range []string{"agnet --memory", "agent --admin x", "config --voters three", "verify", "leave now", "backup -file x"} {
		if parses(strings.Fields(line)) == nil {
			t.Errorf("conclave %s passes", line)
		}
	}
	if err := parses(strings.Fields("lock x -- command")); err != nil {
		t.Error(err)
	}
}

// operator precedes the commands of docs/OPERATIONS.md: it waits for what a reader waits for.
const operator = `set -eu
sleep() {
	case $1 in
	3) ready 127.0.0.1:7104 127.0.0.1:7105 ;;
	5) if command kill -0 $ben; then ready 127.0.0.1:7101 127.0.0.1:7102 127.0.0.1:7103; fi ;; # else there is no quorum
	15) # the lost member is replaced meanwhile
		until conclave members -o json | grep '"alive":false' | grep -q standby; do command sleep 0.3; done ;;
	*) command sleep 1 ;;
	esac
}
ready() { for at; do until conclave health --http $at; do command sleep 0.3; done; done >/dev/null 2>&1; }
command -v curl >/dev/null || curl() { echo "livez check passed"; } # nothing else needs it
# What is killed has ended before the next command.
kill() { command kill "$@"; if [ "$1" = -9 ]; then shift; wait "$@" || true; fi; }
`

// The commands of docs/OPERATIONS.md do what it says, one after the other, in the shell that its reader has. The test has other ports, and
// takes less time where the page waits for people.
func TestOperations_PageFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := fmt.Sprintf("#!/bin/sh\n%s=1 exec %q \"$@\"\n", runVariable, os.Args[0])
	must0(t, os.WriteFile(filepath.Join(dir, "conclave"), []byte(program), 0o700))
	var script strings.Builder
	script.WriteString(operator)
	for _, block := range shellBlocks(readDocument(t, "docs/OPERATIONS.md")) {
		switch {
		case strings.HasPrefix(block, "systemd-analyze"), strings.Contains(block, "tls"): // not everywhere
			continue
		case strings.HasPrefix(block, "CGO_ENABLED=0 go"):
			block = "export PATH=$PATH:$PWD\n"
		case strings.HasPrefix(block, "curl"): // a reader is slower than the last agent that starts
			block = "ready 127.0.0.1:7101\n" + block
		}
		fmt.Fprintf(&script, "cat <<'END' >&2\n%sEND\n%s", block, block)
	}
	script.WriteString("kill -TERM $anna $ben $clara\nwait $anna $ben $clara\n")
	commands := strings.ReplaceAll(script.String(), "--replace-after 10s", "--replace-after 5s")
	ports := freePorts(t, 10)
	for i, port := range []string{"7001", "7002", "7003", "7004", "7005", "7101", "7102", "7103", "7104", "7105"} {
		commands = strings.ReplaceAll(commands, "127.0.0.1:"+port, fmt.Sprint("127.0.0.1:", ports[i]))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-c", commands)
	bash.Dir, bash.Env = dir, append(os.Environ(), variable("timeout")+"=60s")
	// Its agents are of its process group, and have its output.
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	bash.Cancel = func() error { return syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) }
	bash.WaitDelay = time.Second
	out, err := bash.CombinedOutput()
	if err != nil {
		_ = bash.Cancel()
		logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", filepath.Base(log), text)
		}
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
	for text, times := range map[string]int{"livez check passed": 1, "is removed": 1, "the member has left its group": 2, "no member has started on it yet": 2} {
		if n := strings.Count(string(out), text); n != times {
			t.Errorf("%q is printed %d times, want %d", text, n, times)
		}
	}
}
