//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/testport"
	"github.com/conclave-go/conclave/internal/wire"
)

// agentAddrs are those that an agent logs when it listens.
func agentAddrs(t *testing.T, line string) (addr, web string) {
	t.Helper()
	found := regexp.MustCompile(` addr=(\S+) http=(\S+)`).FindStringSubmatch(line)
	if found == nil {
		t.Fatal(line)
	}
	return found[1], found[2]
}

func get(t *testing.T, url, user, password string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t), http.MethodGet, url, nil)
	must0(t, err)
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	answer, err := http.DefaultClient.Do(r)
	must0(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must0(t, err)
	return answer.StatusCode, string(text)
}

func TestAgent(t *testing.T) {
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	must0(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	p := start(t, "agent", "--dir", dir+"/1", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--console-password-file", password)
	first := p.line("msg=")
	if !strings.Contains(first, fmt.Sprintf(" level=%d", wire.FeatureLevel)) || !strings.Contains(first, " build="+conclave.Version()) {
		t.Error("the first line of the log lacks the version:", first)
	}
	addr, web := agentAddrs(t, first)
	p.line("msg=open")
	if code := run([]string{"--addr", addr, "status"}, nil, io.Discard, os.Stderr); code != 0 {
		t.Error("status:", code)
	}
	if code := run([]string{"health", "--http", web}, nil, io.Discard, os.Stderr); code != 0 {
		t.Error("health:", code)
	}
	if status, body := get(t, "http://"+web+"/metrics", "", ""); status != 200 || !strings.Contains(body, "conclave_role") && !strings.Contains(body, "conclave_node") {
		t.Error("metrics:", status, body)
	}
	for user, code := range map[string]int{"": 401, "operator": 200} {
		if status, body := get(t, "http://"+web+"/console/", user, "correct horse"); status != code {
			t.Errorf("console as %q: %d %s", user, status, body)
		}
	}
	if status, _ := get(t, "http://"+web+"/console/", "operator", "wrong"); status != 401 {
		t.Error("console with a wrong password:", status)
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.line("msg=closed")
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if code := run([]string{"health", "--http", web, "--timeout", "10s"}, nil, io.Discard, io.Discard); code != 5 {
		t.Error("health of an agent that is down:", code)
	}
}

// Without --console-keys the console has no key, and with it only for those that may view the page.
func TestAgent_ConsoleKeys(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	must0(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	for _, flags := range [][]string{nil, {"--console-keys"}, {"--console-keys", "--console-password-file", password}} {
		p := start(t, append([]string{"agent", "--memory", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0"}, flags...)...)
		addr, web := agentAddrs(t, p.line("msg=listening"))
		p.line("msg=open")
		if code := run([]string{"--addr", addr, "kv", "put", "greeting", "good morning"}, nil, io.Discard, os.Stderr); code != 0 {
			t.Fatal("put:", code)
		}
		want := []int{400, 200, 0, 401}[len(flags)]
		status, page := get(t, "http://"+web+"/console/?show=keys", "", "")
		if status != want || strings.Contains(page, "good morning") != (want == 200) {
			t.Errorf("with %v: %d, want %d\n%s", flags, status, want, page)
		}
		status, page = get(t, "http://"+web+"/console/?show=keys", "operator", "correct horse")
		if len(flags) == 3 && (status != 200 || !strings.Contains(page, "good morning")) {
			t.Errorf("with the password: %d\n%s", status, page)
		}
	}
}

// A reader of standard error that has stopped does not keep the agent from joining, serving and ending: an
// agent whose log nothing reads answers probes as any other.
func TestAgent_LogWithoutReader(t *testing.T) {
	r, w, err := os.Pipe()
	must0(t, err)
	defer r.Close()
	fill(r, w)
	web := testport.Addr(t)
	cmd := exec.Command(os.Args[0], "agent", "--memory", "--bind", "127.0.0.1:0", "--http", web)
	cmd.Env, cmd.Stderr = append(os.Environ(), runVariable+"=1"), w
	must0(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	must0(t, w.Close())
	late := time.After(patience)
	for run([]string{"health", "--http", web, "--timeout", "10s"}, nil, io.Discard, io.Discard) != 0 {
		select {
		case <-ended:
			t.Fatal("the agent has ended:", cmd.ProcessState)
		case <-late:
			t.Fatal("the agent is not ready")
		case <-time.After(10 * time.Millisecond): // nothing signals it
		}
	}
	must0(t, cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		must0(t, err)
	case <-late:
		t.Fatal("the agent does not end")
	}
}

// An error is reported to a reader that has stopped, and the exit code is as ever.
func TestExit_WithoutReader(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	must0(t, err)
	defer r.Close()
	fill(r, w)
	cmd := exec.CommandContext(within(t), os.Args[0], "agent")
	cmd.Env, cmd.Stderr = append(os.Environ(), runVariable+"=1"), w
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != exitUsage {
		t.Errorf("%v, want exit code %d", cmd.ProcessState, exitUsage)
	}
}

// While the founders have not found each other, the agent answers probes and ends gracefully.
func TestAgent_WaitingForFounders(t *testing.T) {
	p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--join", "127.0.0.1:9", "--expect", "2")
	_, web := agentAddrs(t, p.line("msg=listening"))
	if status, _ := get(t, "http://"+web+"/readyz", "", ""); status != 503 {
		t.Error("readyz:", status)
	}
	if status, _ := get(t, "http://"+web+"/livez", "", ""); status != 200 {
		t.Error("livez:", status)
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// A proxy is for other hosts: the answer would be about it.
func TestHealth_Proxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "proxy") }))
	defer proxy.Close()
	cmd := exec.Command(os.Args[0], "health", "--http", "agent.invalid:7101", "--timeout", "5s")
	cmd.Env = append(os.Environ(), runVariable+"=1", "HTTP_PROXY="+proxy.URL, "NO_PROXY=")
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("%v, want exit code 5:\n%s", cmd.ProcessState, out)
	}
}

// Of two flags that exclude each other the one on the command line counts, not that of the environment, as the image has it.
func TestEnvironment_CommandLineFirst(t *testing.T) {
	n := member(t, "")
	t.Setenv("CONCLAVE_HTTP", "127.0.0.1:9")
	if out := must(t, n, "health"); !strings.Contains(out, "anna") || !strings.Contains(out, "[+]leader ok") {
		t.Error(out)
	}
	want(t, conclaveAt(n, "health", "--http", "127.0.0.1:9", "--timeout", "10s"), exitUnavailable, "is an agent running")

	t.Setenv("CONCLAVE_DIR", filepath.Join(t.TempDir(), "unused"))
	p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "none")
	p.line("msg=open")
	if _, err := os.Stat(os.Getenv("CONCLAVE_DIR")); err == nil {
		t.Error("--memory with CONCLAVE_DIR: the directory is used")
	}
	dir := filepath.Join(t.TempDir(), "used")
	t.Setenv("CONCLAVE_MEMORY", "true")
	want(t, conclaveAt(n, "agent", "--bind", "127.0.0.1:0", "--http", "none"), exitUsage, "exclude each other")
	start(t, "agent", "--dir", dir, "--bind", "127.0.0.1:0", "--http", "none").line("msg=open")
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

// The files for containers set variables that the agent knows, and no others.
func TestAgent_ContainerFiles(t *testing.T) {
	known := map[string]bool{passwordVariable: true}
	agent, _, err := new(program).root().Find([]string{"agent"})
	must0(t, err)
	all := func(f *pflag.Flag) { known[variable(f.Name)] = true }
	agent.LocalFlags().VisitAll(all)
	agent.InheritedFlags().VisitAll(all)
	for _, file := range []string{"../../Dockerfile", "../../compose.yaml"} {
		text, err := os.ReadFile(file)
		must0(t, err)
		found := regexp.MustCompile(`CONCLAVE_[A-Z_]+`).FindAllString(string(text), -1)
		if len(found) < 3 {
			t.Errorf("%s sets %v", file, found)
		}
		for _, v := range found {
			if !known[v] {
				t.Errorf("%s sets %s, which is no flag of agent", file, v)
			}
		}
	}
	var services struct {
		Services map[string]struct {
			Environment map[string]string
			Ports       []string
		}
	}
	text, err := os.ReadFile("../../compose.yaml")
	must0(t, err)
	must0(t, yaml.Unmarshal(text, &services))
	for name, s := range services.Services {
		if s.Environment["CONCLAVE_NAME"] != name || s.Environment["CONCLAVE_ADVERTISE"] != name+":7001" || !strings.Contains(s.Environment["CONCLAVE_JOIN"], name+":7001") {
			t.Errorf("%s: %v", name, s.Environment)
		}
	}
	if len(services.Services) != 3 {
		t.Errorf("%d services", len(services.Services))
	}
}

func TestAgent_Leaves(t *testing.T) {
	first := start(t, "agent", "--memory", "--name", "anna", "--bind", "127.0.0.1:0", "--http", "none")
	addr, _ := agentAddrs(t, first.line("msg=listening"))
	second := start(t, "agent", "--memory", "--name", "ben", "--bind", "127.0.0.1:0", "--http", "none", "--join", addr, "--leave")
	second.line("msg=open")
	must0(t, second.cmd.Process.Signal(syscall.SIGTERM))
	second.line("msg=closed")
	if code := second.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	first.line(`msg="member removed"`)
}
