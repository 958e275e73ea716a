//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The certificates that docs/OPERATIONS.md makes are those of an agent and of its clients.
func TestDocuments_Certificates(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("SKIPPED: there is no openssl, so the commands for certificates were not tested")
	}
	var commands string
	for _, block := range shellBlocks(readDocument(t, "docs/OPERATIONS.md")) {
		if strings.Contains(block, "openssl") {
			commands += block
		}
	}
	dir := t.TempDir()
	bash := exec.CommandContext(within(t), "bash", "-euc", commands)
	bash.Dir = dir
	if out, err := bash.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s\n%s", err, commands, out)
	}
	for name, file := range map[string]string{"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"} {
		t.Setenv(variable(name), filepath.Join(dir, "tls", file))
	}
	t.Setenv(variable("servername"), "orders")
	p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "none")
	addr, _ := agentAddrs(t, p.line("msg=listening"))
	p.line("msg=open")
	if code := run([]string{"status", "--addr", addr}, nil, io.Discard, os.Stderr); code != 0 {
		t.Error("status: exit code", code)
	}
	if code := run([]string{"status", "--addr", addr, "--servername", "invoices", "--timeout", "1s"}, nil, io.Discard, io.Discard); code == 0 {
		t.Error("the member has the name of another group")
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.line("msg=closed")
}
