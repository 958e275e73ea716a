package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/wire"
)

func TestUsage(t *testing.T) {
	n := member(t, "")
	for _, c := range []struct {
		args     string
		code     int
		contains string
	}{
		{"nonsense", 2, `unknown command "nonsense"`},
		{"status extra", 2, `unexpected argument "extra"`},
		{"explain", 2, "missing LOCK"},
		{"kv get", 2, "missing KEY"},
		{"kv cas k v", 2, "index"},
		{"kv rm k --prefix --index 1", 2, "prefix"},
		{"status --output xml", 2, "want table or json"},
		{"status --timeout 0s", 2, "want a time above 0"},
		{"events --follow --interval 0s", 2, "--interval 0s: want at least 1ms"},
		{"top --interval 0s", 2, "--interval 0s: want at least 1ms"},
		{"locks --limit -1", 2, "want 0, for all, or more"},
		{"status --cert c.pem", 2, "belong together"},
		{"release", 2, "want either"},
		{"release x --session y", 2, "want either"},
		{"release --session y --force", 2, "session"},
		{"config --voters 2", 2, "invalid --voters: want"},
		{"bench --workload none", 2, "want lock, put or get"},
		{"bench --callers 0", 2, "--callers"},
		{"lock", 125, "missing NAME"},
		{"lock x y", 125, "put -- before"},
		{"lock x --", 125, "missing the command"},
		{"lock -- x", 125, "missing NAME"},
		{"lock x --grace 2m -- true", 125, "want 0 to 59s"},
		{"lock x --ttl 1ms -- true", 125, "invalid --ttl: want 1s to 24h0m0s, got 1ms"},
		{"lock x --try --wait 1s -- true", 125, "no effect"},
		{"agent", 2, "missing --dir"},
		{"agent --memory --dir x", 2, "exclude each other"},
		{"agent --memory --log xml", 2, "want text or json"},
		{"agent --memory now", 2, `unexpected argument "now"`},
		{"agent --memory --http none --cert x", 2, "belong together"},
		{"agent --memory --http none --bind 0.0.0.0:0", 2, "set --advertise to"},
		{"agent --memory --http none --bind 127.0.0.1:0 --join here", 2, `invalid --join: want host:port, got "here"`},
		{"agent --memory --http none --bind 127.0.0.1:0 --expect -1", 2, "invalid --expect"},
		{"agent --memory --http none --bind 192.0.2.1:0", 1, "--bind"},
		{"config --replace-after 1s", 2, "invalid --replace-after"},
		{"agent --memory --leave=10", 2, "--leave"},
		{"leave", 2, "missing the password"},
		{"leave now", 2, `unexpected argument "now"`},
		{"status --http 127.0.0.1:9 --timeout 10s", 5, "is an agent running"},
		{"remove", 2, "missing MEMBER"},
		{"backup", 2, "missing FILE"},
		{"agent --memory --http none --bind 127.0.0.1:0 --voters 2", 2, "invalid --voters"},
		{"agent --memory --bind 127.0.0.1:0 --http none --consul-http 0.0.0.0:0", 2, "--consul-token-file"},
		{"agent --memory --bind 127.0.0.1:0 --http none --consul-http 127.0.0.1:0 --consul-session-ttl-min 10ms", 2, "want 1s to 24h"},
		{"agent --memory --bind 127.0.0.1:0 --http none --consul-http 127.0.0.1:0 --consul-token-file missing", 1, "--consul-token-file"},
		{"restore x", 2, "dir"},
		{"verify missing", 1, "missing"},
	} {
		want(t, conclaveAt(n, strings.Fields(c.args)...), c.code, c.contains)
	}
}

// A message does not control the terminal.
func TestUsage_HostileText(t *testing.T) {
	r := conclaveAt(member(t, ""), "backup", "none/\x1b[2J\u202e")
	want(t, r, 1, `none/\x1b[2J\u202e`)
	if strings.ContainsAny(r.err, "\x1b\u202e") {
		t.Errorf("%q", r.err)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	code := run([]string{"status", "--addr", "127.0.0.1:9", "--timeout", "3s"}, nil, &out, &errs)
	want(t, result{out.String(), errs.String(), code}, 5, "check that the member runs, and the host and port in --addr, or --advertise of that member")
	if text := out.String(); !strings.Contains(text, "address:  127.0.0.1:9 refused: ") || !strings.Contains(text, "next:     start the members, or correct --addr") {
		t.Error(text)
	}
	code = run([]string{"lock", "x", "--addr", "127.0.0.1:9", "--timeout", "3s", "--", "true"}, nil, &out, &errs)
	want(t, result{out.String(), errs.String(), code}, 125, "check that the member runs")
	code = run([]string{"status", "--addr", "192.0.2.1:7001"}, nil, &out, &errs)
	want(t, result{out.String(), errs.String(), code}, 2, "TLS is not set: set --cert, --key and --ca, or --insecure if the network is trusted")
}

// The environment sets the flags that all commands have, and the command line wins.
func TestEnvironment(t *testing.T) {
	n := member(t, "")
	var out, errs bytes.Buffer
	t.Setenv("CONCLAVE_ADDR", n.Addr())
	t.Setenv("CONCLAVE_OUTPUT", "json")
	t.Setenv("CONCLAVE_FORCE", "true") // of release, which must be asked for
	t.Setenv("CONCLAVE_SESSION", "x")
	if code := run([]string{"status"}, nil, &out, &errs); code != 0 || decoded[statusView](t, out.String()).Name != "anna" {
		t.Error(code, out.String(), errs.String())
	}
	out.Reset()
	if code := run([]string{"status", "-o", "table"}, nil, &out, &errs); code != 0 || !strings.HasPrefix(out.String(), "leader:") {
		t.Error(code, out.String(), errs.String())
	}
	must0(t, lockNow(t, n, "x"))
	want(t, conclaveAt(n, "release", "x"), 2, "--force does it")
	t.Setenv("CONCLAVE_TIMEOUT", "soon")
	want(t, conclaveAt(n, "status"), 2, "CONCLAVE_TIMEOUT")
}

func lockNow(t *testing.T, n *conclave.Node, name string) error {
	_, err := n.FencedLock(name).Lock(within(t))
	return err
}

// docs/CLI.md has each command and each of its flags.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/CLI.md")
	must0(t, err)
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		if path := strings.TrimPrefix(c.CommandPath(), "conclave "); c.Runnable() && !strings.Contains(string(text), "`"+path) {
			t.Errorf("docs/CLI.md does not have %q", path)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(string(text), "`--"+f.Name) {
				t.Errorf("docs/CLI.md does not have --%s of %q", f.Name, c.CommandPath())
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(new(program).root())
}

func TestStatus(t *testing.T) {
	n := member(t, "")
	id := n.Status().ID
	s := decoded[statusView](t, must(t, n, "status", "-o", "json"))
	if s.ID != id || s.Leader != id || s.Name != "anna" || s.Role != "voter" || len(s.Members) != 1 || !s.Members[0].Alive || !s.Members[0].Leader || s.Members[0].Lag == nil {
		t.Errorf("%+v", s)
	}
	if s.Group != "conclave" || s.TLS || s.NotAfter != nil {
		t.Errorf("%+v, want the group without TLS", s)
	}
	if out := must(t, n, "status"); !strings.Contains(out, "group:       conclave\ntls:         no\n") {
		t.Error(out)
	}
	build, level := conclave.Version(), uint32(wire.FeatureLevel)
	if s.Level != level || s.Members[0].Level != level || s.Members[0].Build != build || build == "" {
		t.Errorf("%+v, want the build %q and the level %d", s, build, level)
	}
	shown := fmt.Sprintf("%s (1 member); feature level %d", build, level)
	if out := must(t, n, "status"); !strings.Contains(out, shown) {
		t.Errorf("%s\nwant %q", out, shown)
	}
	if out := must(t, n, "members"); !strings.HasSuffix(out, fmt.Sprintf("  %-5d  %s\n", level, build)) {
		t.Errorf("%s\nwant the level %d and the build %q at the end", out, level, build)
	}
	if out := must(t, n, "status"); !strings.Contains(out, "anna") || !strings.Contains(out, "no further voter may fail") {
		t.Error(out)
	}
	if out := must(t, n, "members"); !strings.Contains(out, id.String()) || !strings.Contains(out, "leader") {
		t.Error(out)
	}
	if out := must(t, n, "config", "--replace-after", "2m"); !strings.Contains(out, "2m0s") || !strings.Contains(out, "never") {
		t.Error(out)
	}
	if c := decoded[configView](t, must(t, n, "config", "-o", "json")); c.ReplaceAfter != 120 || c.Voters != 3 {
		t.Errorf("%+v", c)
	}
	for _, output := range []string{"table", "json"} { // settings that are refused are not printed
		r := conclaveAt(n, "config", "--voters", "4", "-o", output)
		if want(t, r, 2, "want 1, 3, 5 or 7, got 4"); r.out != "" {
			t.Errorf("prints %s", r.out)
		}
	}
	want(t, conclaveAt(n, "transfer", "bert"), 4, `"bert"`)
	want(t, conclaveAt(n, "remove", "bert"), 4, `"bert"`)
	if r := conclaveAt(n, "remove", "anna"); r.code == 0 {
		t.Error("the only member is removed")
	}
}

func TestVersion(t *testing.T) {
	n := member(t, "")
	if out, want := must(t, n, "--version"), "conclave "+conclave.Version()+"\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	if out := must(t, n, "version"); !strings.Contains(out, conclave.Version()+"\n") || !strings.Contains(out, runtime.Version()) {
		t.Error(out)
	}
	v := decoded[versionView](t, must(t, n, "version", "-o", "json"))
	if want := (versionView{conclave.Version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, wire.FeatureLevel}); v != want {
		t.Errorf("%+v, want %+v", v, want)
	}
}

// The builds of a group in the midst of an upgrade, with a member whose build is not known.
func TestStatus_Builds(t *testing.T) {
	s := conclave.Status{FeatureLevel: 5, Members: []conclave.Member{{Build: "v0.2.0"}, {Build: "v0.1.0"}, {}, {Build: "v0.1.0"}, {Build: "v0.1.0 \u202e"}}}
	want := `not known (1 member), v0.1.0 (2 members), v0.1.0 \u202e (1 member), v0.2.0 (1 member); feature level 5`
	if got := buildsText(s); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := buildsText(conclave.Status{Members: make([]conclave.Member, 2)}); got != "not known (2 members); feature level -" {
		t.Error(got)
	}
}

// A member that is not connected shows no priority, and the default one is not worth a line. An agent's answer has what its node knows.
func TestStatus_LeaderPriority(t *testing.T) {
	known := func(priority int) conclave.Member {
		return conclave.Member{PriorityKnown: true, LeaderPriority: priority}
	}
	for want, members := range map[string][]conclave.Member{
		"":                                     {known(0), known(0), {}},
		"5 (1 member), 0 (2 members)":          {known(0), known(5), known(0)},
		"-1 (1 member), not known (2 members)": {known(-1), {}, {}},
	} {
		s := conclave.Status{Members: members}
		if got := prioritiesText(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		for i, m := range statusOf(s, accessView{}).status().Members {
			if m.PriorityKnown != members[i].PriorityKnown || m.LeaderPriority != members[i].LeaderPriority {
				t.Errorf("%+v, want %+v", m, members[i])
			}
		}
	}
	n := member(t, "")
	if s := decoded[statusView](t, must(t, n, "status", "-o", "json")); s.Members[0].Priority == nil || *s.Members[0].Priority != 0 {
		t.Errorf("%+v", s.Members[0])
	}
	if out := must(t, n, "members"); !strings.Contains(out, "PRIORITY") {
		t.Error(out)
	}
}

// Every flag that is a duration refuses what lacks its unit: 15ns is what a program means that sets 15.
func TestUsage_DurationsTooShort(t *testing.T) {
	args := map[string]string{ // that a command needs before its flags count
		"lock": "x", "elect": "x", "explain": "x", "kv get": "x", "kv put": "x y", "kv cas": "x y --index 1", "kv rm": "x", "release": "x --force",
		"remove": "1", "backup": "b", "verify": "d", "man": "d", "restore": "b --dir d", "recover": "--dir d",
	}
	n := member(t, "")
	tried := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if cmd.RunE == nil {
			return
		}
		path := strings.TrimPrefix(cmd.CommandPath(), "conclave ")
		check := func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			line := append(strings.Fields(path+" "+args[path]), "--"+f.Name, "15ns")
			code := exitUsage
			if cmd.Annotations[runsChild] != "" {
				code = exitItself
			}
			want(t, conclaveAt(n, line...), code, "--"+f.Name+" 15ns: want at least 1ms")
			tried++
		}
		cmd.LocalNonPersistentFlags().VisitAll(check)
		cmd.InheritedFlags().VisitAll(check)
	}
	visit(new(program).root())
	if tried < 20 {
		t.Errorf("%d flags tried", tried)
	}
}
