package consultest

import (
	"bytes"
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

// HashiCorp's own tests of its client pass, unmodified: they start the stand-in as consul.
func TestHashiCorp_OwnTests(t *testing.T) {
	names := tests(t)
	for name := range undone {
		i := slices.Index(names, name)
		if i < 0 {
			t.Fatalf("%s has no test %s", hashicorp, name)
		}
		names = slices.Delete(names, i, i+1)
	}
	bin := t.TempDir()
	gotool(t, os.Environ(), "build", "-o", filepath.Join(bin, "consul"), "./standin")
	env := append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out := gotool(t, env, "test", "-count=1", "-v", "-parallel=8", "-timeout=4m", "-run", "^("+strings.Join(names, "|")+")$", hashicorp)
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

// tests lists the tests of HashiCorp's client that concern what package consulapi serves.
func tests(t *testing.T) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(gotool(t, os.Environ(), "test", "-list", concerned, hashicorp)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") {
			names = append(names, name)
		}
	}
	if len(names) < 47 {
		t.Fatalf("%s has %d tests that match, 47 when this was written", hashicorp, len(names))
	}
	return names
}

// gotool runs the go command, and returns what it printed.
func gotool(t *testing.T, env []string, args ...string) string {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &complaint
	if err := cmd.Run(); err != nil {
		t.Errorf("go %s: %v\n%s", args[0], err, complaint.String())
	}
	return out.String()
}
