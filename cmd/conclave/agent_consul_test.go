//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// consulAddr is the address of Consul's API that an agent logs.
func consulAddr(t *testing.T, line string) string {
	t.Helper()
	found := regexp.MustCompile(` consul=(\S+)`).FindStringSubmatch(line)
	if found == nil {
		t.Fatal(line)
	}
	return found[1]
}

func ask(t *testing.T, method, url, token, body string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t), method, url, strings.NewReader(body))
	must0(t, err)
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	answer, err := http.DefaultClient.Do(r)
	must0(t, err)
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	must0(t, err)
	return answer.StatusCode, string(read)
}

func TestAgent_Consul(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	must0(t, os.WriteFile(token, []byte("open sesame\n"), 0o600))
	p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "none", "--consul-http", "127.0.0.1:0", "--consul-token-file", token)
	url := "http://" + consulAddr(t, p.line("msg=listening"))
	p.line("msg=open")
	for _, c := range []struct {
		token  string
		status int
		text   string
	}{
		{"", 403, "Permission denied: this needs the token of the agent"},
		{"open", 403, "Permission denied: this needs the token of the agent"},
		{"open sesame", 200, "true"},
	} {
		if status, text := ask(t, "PUT", url+"/v1/kv/a//b", c.token, "x"); status != c.status || text != c.text {
			t.Errorf("token %q: %d %q", c.token, status, text)
		}
	}
	if status, text := ask(t, "GET", url+"/v1/kv/a//b?raw", "open sesame", ""); status != 200 || text != "x" {
		t.Error(status, text)
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.line("msg=closed")
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// With --consul-group the API serves a further group, which the agent creates; the default group has none of its keys.
func TestAgent_ConsulGroup(t *testing.T) {
	p := start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "none", "--consul-http", "127.0.0.1:0", "--consul-group", "billing")
	line := p.line("msg=listening")
	url, addr := "http://"+consulAddr(t, line), regexp.MustCompile(` addr=(\S+)`).FindStringSubmatch(line)[1]
	p.line("msg=open")
	for ctx := within(t); ; { // until the group is created
		status, text := ask(t, "PUT", url+"/v1/kv/k", "", "x")
		if status == 200 {
			break
		}
		if ctx.Err() != nil || status != 500 || !strings.Contains(text, "group not found") && text != "No cluster leader" && !strings.Contains(text, "outcome unknown") {
			t.Fatal(status, text)
		}
		time.Sleep(20 * time.Millisecond) // the agent needs the processors
	}
	client, err := conclave.Dial(within(t), &conclave.ClientConfig{Addresses: []string{addr}})
	must0(t, err)
	defer client.Close(within(t))
	if _, err := client.KV().Get(within(t), "k"); !errors.Is(err, conclave.ErrKeyNotFound) {
		t.Errorf("the default group: %v", err)
	}
	e, err := client.WithGroup("billing").KV().Get(within(t), "k")
	must0(t, err)
	if string(e.Value) != "x" {
		t.Errorf("the group has %q", e.Value)
	}
	must0(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.line("msg=closed")
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// A group that is not served would not be created, either.
func TestAgent_ConsulGroupNotServed(t *testing.T) {
	_, err := newConsulServer(consulOptions{addr: "none", group: "billing"}, slog.New(slog.DiscardHandler))
	if codeOf(err) != exitUsage || !strings.Contains(err.Error(), "--consul-http") {
		t.Error(err)
	}
}

func TestAgent_ConsulGroupInvalid(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 513), "a\x00b", "\xff"} {
		_, err := newConsulServer(consulOptions{addr: "127.0.0.1:0", group: name, datacenter: "dc1", ttlMin: time.Second}, slog.New(slog.DiscardHandler))
		if codeOf(err) != exitUsage || !strings.Contains(err.Error(), "--consul-group") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Only the agent's user can connect to a Unix socket. One that a killed agent has left is replaced; one that another
// agent listens at, and a file of another kind, are not.
func TestAgent_ConsulUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "conclave") // a socket's path has 100 bytes or so
	must0(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "consul.sock")
	agent := func(path string) *process {
		return start(t, "agent", "--memory", "--bind", "127.0.0.1:0", "--http", "none", "--consul-http", "unix://"+path)
	}

	first := agent(path)
	if addr := consulAddr(t, first.line("msg=listening")); addr != "unix://"+path {
		t.Errorf("the agent logs the address %q", addr)
	}
	first.line("msg=open")
	putByUnixSocket(t, path)
	info, err := os.Stat(path)
	must0(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has the mode %v", info.Mode())
	}
	second := agent(path)
	second.line("another process listens there")
	if code := second.wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	must0(t, first.cmd.Process.Kill())
	first.wait()

	third := agent(path)
	third.line("msg=open")
	putByUnixSocket(t, path)
	must0(t, third.cmd.Process.Signal(syscall.SIGTERM))
	third.line("msg=closed")
	third.wait()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end the socket exists: %v", err)
	}

	file := filepath.Join(dir, "file")
	must0(t, os.WriteFile(file, []byte("precious"), 0o600))
	fourth := agent(file)
	fourth.line("is no socket")
	fourth.wait()
	if text, err := os.ReadFile(file); string(text) != "precious" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// A socket without a file has no permissions: every user of the machine could connect to it.
func TestAgent_ConsulUnixSocketWithoutFile(t *testing.T) {
	for _, addr := range []string{"unix://", "unix://@", "unix://@consul"} {
		l, err := listenConsul(addr)
		if err == nil {
			t.Errorf("%s: listens at %v", addr, l.Addr())
			must0(t, l.Close())
		} else if !strings.Contains(err.Error(), "want the path of a file") {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// The system's own error for a path that is too long says that some argument is invalid.
func TestAgent_ConsulUnixSocketTooLong(t *testing.T) {
	l, err := listenConsul("unix:///tmp/" + strings.Repeat("x", maxSocketPath))
	if err == nil {
		must0(t, l.Close())
		t.Fatal("it listens")
	}
	if codeOf(err) != exitUsage || !strings.Contains(err.Error(), fmt.Sprintf("at most %d bytes", maxSocketPath)) {
		t.Error(err)
	}
}

func putByUnixSocket(t *testing.T, path string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(within(t), "PUT", "http://any.name/v1/kv/a", strings.NewReader("x"))
	must0(t, err)
	answer, err := (&http.Client{Transport: transport}).Do(r)
	must0(t, err)
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); answer.StatusCode != 200 || string(text) != "true" {
		t.Errorf("%d %s, %v", answer.StatusCode, text, err)
	}
}
