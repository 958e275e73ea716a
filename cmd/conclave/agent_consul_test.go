//go:build unix

package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
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
