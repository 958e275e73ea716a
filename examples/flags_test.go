package examples

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Invalid arguments: exit status 2, a line that names the fault, and no effect.
func TestFlags_Invalid(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	dir := filepath.Join(temp, "data")
	here := []string{"-dir", dir}
	named := slices.Concat(here, []string{"-name", "anna"})
	stored := slices.Concat(named, []string{"-store", filepath.Join(temp, "store")})
	with := func(args []string, more ...string) []string { return slices.Concat(args, more) }
	for _, c := range []struct {
		example string
		args    []string
		want    string
	}{
		{"member", []string{"-lock", "invoices"}, "missing -dir"},
		{"member", with(here, "now"), `unexpected argument "now"`},
		{"member", with(here, "-wait"), "-wait"},
		{"member", with(here, "-ttl", "10"), `invalid value "10"`},
		{"member", with(here, "-ttl", "1ms"), "SessionTTL"},
		{"member", with(here, "-bind", "0.0.0.0:0"), "Advertise"},
		{"member", with(here, "-join", "here"), `"here"`},
		{"leaderelection", nil, "missing -dir"},
		{"leaderelection", here, "missing -name"},
		{"leaderelection", with(named, "-election", ""), "empty -election"},
		{"leaderelection", with(named, "-tick", "0s"), "invalid -tick"},
		{"leaderelection", with(named, "-ttl", "1ms"), "SessionTTL"},
		{"leaderelection", with(named, "now"), `unexpected argument "now"`},
		{"ratelimit", with(named, "-limit", "0"), "invalid -limit"},
		{"ratelimit", with(named, "-workers", "0"), "invalid -workers"},
		{"ratelimit", with(named, "now"), `unexpected argument "now"`},
		{"configwatch", with(named, "now"), `unexpected argument "now"`},
		{"configwatch", with(named, "-join", "here"), `"here"`},
		{"cache", here, "missing -name"},
		{"cache", with(named, "-linger", "0s"), "invalid -linger"},
		{"cache", with(named, "now"), `unexpected argument "now"`},
		{"exclusivejob", named, "missing -store"},
		{"exclusivejob", with(stored, "-every", "10"), `invalid value "10"`},
		{"exclusivejob", with(stored, "-every", "0s"), "invalid -every"},
		{"exclusivejob", with(stored, "now"), `unexpected argument "now"`},
		{"shardedworker", named, "missing -store"},
		{"shardedworker", with(here, "-store", temp), "missing -name"},
		{"shardedworker", with(stored, "-every", "0s"), "invalid -every"},
		{"shardedworker", with(stored, "-ttl", "1ms"), "SessionTTL"},
		{"shardedworker", with(stored, "now"), `unexpected argument "now"`},
		{"quickstart", []string{"now"}, `unexpected argument "now"`},
		{"quickstart", []string{"-now"}, "-now"},
		{"semaphorerecipe", []string{"now"}, `unexpected argument "now"`},
		{"transfer", []string{"now"}, `unexpected argument "now"`},
	} {
		p := start(t, c.example, nil, c.example, c.args...)
		status, text := p.wait(), strings.Join(p.text(), "\n")
		if status != 2 || !strings.Contains(text, c.want) {
			t.Errorf("%s %q: exit status %d, want 2 and %q in the output:\n%s", c.example, c.args, status, c.want, text)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: got %v, want it not to exist", dir, err)
	}
}

// Help is printed, and nothing else runs.
func TestFlags_Help(t *testing.T) {
	t.Parallel()
	for example, want := range map[string]string{
		"member":          "-lock name",
		"leaderelection":  "-tick duration",
		"ratelimit":       "-limit jobs",
		"configwatch":     "-prefix prefix",
		"cache":           "-linger duration",
		"exclusivejob":    "-store file",
		"shardedworker":   "-store folder",
		"fencedstore":     "go run ./examples/fencedstore",
		"quickstart":      "go run ./examples/quickstart",
		"semaphorerecipe": "go run ./examples/semaphorerecipe",
		"transfer":        "go run ./examples/transfer",
	} {
		if example == "fencedstore" && runtime.GOOS == "windows" {
			continue // it needs a Unix system, and prints that
		}
		p := start(t, example, nil, example, "-help")
		status, text := p.wait(), strings.Join(p.text(), "\n")
		if status != 0 || !strings.Contains(text, want) || strings.Contains(text, "granted") {
			t.Errorf("%s -help: exit status %d, want 0 and %q in the output:\n%s", example, status, want, text)
		}
	}
}
