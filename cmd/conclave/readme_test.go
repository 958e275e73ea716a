//go:build unix

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/testport"
)

// freePorts returns different ports of the loopback interface at which nothing listens.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		_, port, err := net.SplitHostPort(testport.Addr(t))
		must0(t, err)
		ports = append(ports, port)
	}
	return ports
}

// awaitEvents has a script wait for what its sleeps give time to: a slow machine takes longer. The first run ends once the file
// exists, which is after the queue has been shown.
func awaitEvents(t *testing.T, script, file string) string {
	t.Helper()
	shows := func(text string) string {
		return "\nuntil conclave explain nightly | grep -q '" + text + "'; do sleep 0.1; done\n"
	}
	for _, r := range [][2]string{
		{"\nsleep 1\n", shows("held by")},
		{"\nsleep 1\n", shows("waiters:")},
		{"; sleep 5'", "; until [ -e " + file + " ]; do sleep 0.1; done'"},
		{"\nconclave explain nightly\n", "\nconclave explain nightly\ntouch " + file + "\n"},
	} {
		if !strings.Contains(script, r[0]) {
			t.Fatalf("README lacks %q", r[0])
		}
		script = strings.Replace(script, r[0], r[1], 1)
	}
	return script
}

// The commands of README's "In five minutes" do what it says, with other ports and another directory.
func TestReadme_InFiveMinutes(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	must0(t, err)
	_, section, _ := strings.Cut(string(text), "\n## In five minutes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var script strings.Builder
	for _, block := range strings.Split(section, "```sh\n")[1:] {
		commands, _, _ := strings.Cut(block, "```")
		script.WriteString(commands)
	}
	dir := t.TempDir()
	must0(t, os.WriteFile(filepath.Join(dir, "conclave"), fmt.Appendf(nil, "#!/bin/sh\n%s=1 exec %q \"$@\"\n", runVariable, os.Args[0]), 0o700))
	commands := strings.ReplaceAll(script.String(), "/tmp/conclave", dir)
	commands = regexp.MustCompile(`(?m)^CGO_ENABLED=0 go .*$`).ReplaceAllString(commands, "set -eu")
	all := freePorts(t, 6)
	for i := range 3 {
		commands = strings.ReplaceAll(commands, fmt.Sprint("127.0.0.1:700", i+1), fmt.Sprint("127.0.0.1:", all[i]))
	}
	ports := fmt.Sprintf("m=(0 %s %s %s) h=(0 %s %s %s)\n", all[0], all[1], all[2], all[3], all[4], all[5])
	commands = strings.NewReplacer("127.0.0.1:700$i", "127.0.0.1:${m[$i]}", "127.0.0.1:710$i", "127.0.0.1:${h[$i]}").Replace(commands)
	commands = awaitEvents(t, commands, filepath.Join(dir, "explained"))
	script.Reset()
	script.WriteString("set -m\n" + ports + commands + "\nkill %1 %2 %3; wait\n")
	bash := exec.CommandContext(within(t), "bash", "-c", script.String())
	bash.Env = append(os.Environ(), variable("timeout")+"=60s")
	out, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, script.String(), out)
	}
	for _, part := range []string{"one more voter may fail", "held by client", "waiters:"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	fences := regexp.MustCompile(`(?s)first, with fence (\d+).*second, with fence (\d+)`).FindStringSubmatch(string(out))
	if fences == nil {
		t.Fatalf("%s", out)
	}
	first, err := conclave.ParseFence(fences[1])
	must0(t, err)
	second, err := conclave.ParseFence(fences[2])
	must0(t, err)
	if second <= first {
		t.Errorf("fence %v after %v", second, first)
	}
}
