package consultest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

const greetings = `{{ key "app/greeting" }} {{ keyOrDefault "app/none" "default" }}
{{ range ls "app/names" }}{{ .Key }}={{ .Value }}
{{ end }}{{ range tree "app" }}{{ .Key }} {{ end }}`

// consul-template renders keys, and renders them again when they change. With -dedup one of several processes, which
// holds a lock, does so for all; when it is killed another one goes on.
func TestConsulTemplate(t *testing.T) {
	program := installed(t, "consul-template", "github.com/hashicorp/consul-template@v0.41.1")
	a := start(t, 3)
	c := a.client(0)
	put := func(key, value string) {
		t.Helper()
		_, err := c.KV().Put(&api.KVPair{Key: key, Value: []byte(value)}, nil)
		must(t, err)
	}
	put("app/greeting", "hello")
	put("app/names/one", "1")
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	must(t, os.WriteFile(source, []byte(greetings), 0o600))

	once := filepath.Join(dir, "once")
	out, err := exec.CommandContext(bounded(t), program, "-consul-addr", a.addr(0), "-template", source+":"+once, "-once").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(once)
	must(t, err)
	if want := "hello default\none=1\ngreeting names/one "; string(text) != want {
		t.Errorf("rendered %q, want %q", text, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	files := []string{filepath.Join(dir, "first"), filepath.Join(dir, "second")}
	var processes []*exec.Cmd
	for i, file := range files {
		cmd := exec.CommandContext(ctx, program, "-consul-addr", a.addr(i), "-template", source+":"+file, "-dedup")
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		must(t, cmd.Start())
		defer cmd.Wait()
		processes = append(processes, cmd)
		rendered(t, file, "hello default\none=1\ngreeting names/one ")
	}
	put("app/greeting", "good day")
	for _, file := range files {
		rendered(t, file, "good day default\none=1\ngreeting names/one ")
	}
	must(t, processes[0].Process.Kill()) // it began first, and holds the lock
	put("app/greeting", "good night")
	rendered(t, files[1], "good night default\none=1\ngreeting names/one ")
	cancel()
}

// rendered waits until a file has a content.
func rendered(t *testing.T, file, want string) {
	t.Helper()
	awaitFile(t, file, func(text string) bool { return text == want })
}

// awaitFile waits until a file exists with a content, which another program writes.
func awaitFile(t *testing.T, file string, wanted func(text string) bool) {
	t.Helper()
	var text []byte
	for late := time.Now().Add(patience); time.Now().Before(late); <-time.After(50 * time.Millisecond) { // no event shows it
		var err error
		if text, err = os.ReadFile(file); err == nil && wanted(string(text)) {
			return
		}
	}
	t.Fatalf("%s has %q, which is not what is waited for", filepath.Base(file), text)
}
