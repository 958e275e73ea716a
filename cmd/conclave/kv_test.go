package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
)

func TestKV(t *testing.T) {
	n := member(t, "")
	must(t, n, "kv", "put", "a/1", "one", "--flags", "7")
	must(t, n, "kv", "put", "a/2", "-")
	if out := must(t, n, "kv", "get", "a/1"); out != "one" {
		t.Errorf("%q", out)
	}
	if out := must(t, n, "kv", "get", "a/2", "--stale"); out != "from standard input" {
		t.Errorf("%q", out)
	}
	e := decoded[entryView](t, must(t, n, "kv", "get", "a/1", "-o", "json"))
	if e.Value != "one" || e.Flags != 7 || e.ModifyIndex == 0 || e.Session != nil {
		t.Errorf("%+v", e)
	}
	index := fmt.Sprint(e.ModifyIndex)
	must(t, n, "kv", "cas", "a/1", "two", "--index", index)
	want(t, conclaveAt(n, "kv", "cas", "a/1", "three", "--index", index), 4, "nothing is changed")
	want(t, conclaveAt(n, "kv", "rm", "a/1", "--index", index), 4, "nothing is changed")
	want(t, conclaveAt(n, "kv", "get", "b"), 4, "key not found")
	if out := must(t, n, "kv", "ls", "a/"); !strings.Contains(out, "a/1") || !strings.Contains(out, "two") {
		t.Error(out)
	}
	if out := must(t, n, "kv", "ls", "--separator", "/"); out != "KEY\na/\n" {
		t.Errorf("%q", out)
	}
	must(t, n, "kv", "put", "fenced", "v", "--fence", "9")
	want(t, conclaveAt(n, "kv", "put", "fenced", "v", "--fence", "8"), 1, "stale fence")
	want(t, conclaveAt(n, "kv", "put", "k", strings.Repeat("x", 600<<10)), 1, "limit exceeded")
	must(t, n, "kv", "rm", "a/1")
	must(t, n, "kv", "rm", "a/", "--prefix")
	if out := must(t, n, "kv", "ls", "a/", "--keys"); out != "KEY\n" {
		t.Errorf("%q", out)
	}
	_, err := n.KV().Put(within(t), "bin", []byte{0xff, 0})
	must0(t, err)
	if e := decoded[entryView](t, must(t, n, "kv", "get", "bin", "-o", "json")); e.Base64 != "/wA=" || e.Value != "" {
		t.Errorf("%+v", e)
	}
}

func TestBackup(t *testing.T) {
	n := member(t, t.TempDir())
	dir := t.TempDir()
	must(t, n, "kv", "put", "k", "v")
	_, err := n.CreateGroup(within(t), "tenant", conclave.GroupConfig{})
	must0(t, err)
	must(t, n, "backup", dir+"/b")
	want(t, conclaveAt(n, "backup", dir+"/b"), 2, "exists")
	must(t, n, "backup", dir+"/b", "--overwrite")
	if r := conclaveAt(n, "backup", dir+"/none/b"); r.code != 1 {
		t.Errorf("%+v", r)
	}
	if raw := must(t, n, "backup", "-"); len(raw) < 100 {
		t.Errorf("%d bytes", len(raw))
	}
	v := decoded[dirView](t, must(t, n, "restore", dir+"/b", "--dir", dir+"/seed", "-o", "json"))
	if !v.Seed || v.Keys != 1 || len(v.Groups) != 1 || v.Groups[0].Name != "tenant" || v.Groups[0].Fence == "" {
		t.Errorf("%+v", v)
	}
	if out := must(t, n, "verify", dir+"/seed"); !strings.Contains(out, "seed") || !strings.Contains(out, `"tenant"`) {
		t.Error(out)
	}
	want(t, conclaveAt(n, "restore", dir+"/b", "--dir", dir+"/seed"), 2, "")
	restored := member(t, dir+"/seed")
	if out := must(t, restored, "kv", "get", "k"); out != "v" {
		t.Errorf("%q", out)
	}
	must0(t, restored.Close(within(t)))
	v = decoded[dirView](t, must(t, n, "recover", "--dir", dir+"/seed", "-o", "json"))
	if !v.Seed || v.Keys != 1 {
		t.Errorf("%+v", v)
	}
}

// Two backups to one file at the same time do not write to the same unfinished file, nor to what another user put in its place.
func TestBackup_Concurrent(t *testing.T) {
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "b"), filepath.Join(dir, "victim")
	must0(t, os.WriteFile(victim, []byte("precious"), 0o644))
	if err := os.Symlink(victim, path+".unfinished"); err != nil {
		t.Log(err)
	}
	text := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	_, err := writeFile(path, func(w io.Writer) error {
		must0(t, text("slow")(w))
		_, err := writeFile(path, text("fast and longer"))
		must0(t, err)
		return text("er")(w)
	})
	must0(t, err)
	for file, want := range map[string]string{path: "slower", victim: "precious"} {
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", file, got, err, want)
		}
	}
	if left, _ := filepath.Glob(path + ".unfinished-*"); len(left) > 0 {
		t.Error("left behind:", left)
	}
	want(t, conclaveAt(member(t, ""), "backup", dir, "--overwrite"), 2, "not a regular file")
}

func TestBench(t *testing.T) {
	t.Parallel()
	n := member(t, "")
	for _, workload := range []string{"lock", "put", "get"} {
		r := decoded[benchResult](t, must(t, n, "bench", "--workload", workload, "--callers", "2", "--clients", "2", "--for", "3s", "-o", "json"))
		if r.Calls == 0 || r.Rate <= 0 || r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.Max {
			t.Errorf("%+v", r)
		}
	}
	must(t, n, "bench", "--shared", "--for", "3s")
	if out := must(t, n, "kv", "ls", "conclave-bench-", "--keys"); out != "KEY\n" {
		t.Errorf("left behind: %q", out)
	}
}
