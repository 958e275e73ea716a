//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conclave-go/conclave"
)

// complete returns what bash offers for the last word of a command line.
func complete(t *testing.T, n *conclave.Node, words ...string) []string {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	program, err := filepath.Abs(os.Args[0])
	must0(t, err)
	must0(t, os.Symlink(program, filepath.Join(dir, "conclave")))
	script := must(t, n, "completion", "bash") + `
_init_completion() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; } # as bash-completion has it
COMP_WORDS=(conclave "$@") COMP_CWORD=$# COMP_LINE="conclave $*" COMP_TYPE=9 COMP_POINT=${#COMP_LINE}
__start_conclave 2>/dev/null # compopt fails outside a completion
if ((${#COMPREPLY[@]})); then printf '%s\n' "${COMPREPLY[@]}"; fi`
	cmd := exec.Command(bash, append([]string{"-c", script, "bash"}, words...)...)
	cmd.Env = append(os.Environ(), runVariable+"=1", "CONCLAVE_ADDR="+n.Addr(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	must0(t, err)
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

// bash inserts what several completions begin with, as it is. So that must not have what it would interpret.
func TestCompletion_Bash(t *testing.T) {
	n := member(t, "")
	for _, name := range []string{"orders-1", "orders-2", "x $(reboot) 1", "x $(reboot) 2", "y;reboot", "z1 a", "z2 b"} {
		must0(t, lockNow(t, n, name))
	}
	for beginning, want := range map[string][]string{
		"o": {"orders-1", "orders-2"}, "orders-2": {"orders-2"}, "x": nil, "y": {`y\;reboot`}, "z": {"z1 a", "z2 b"}, "n": nil,
	} {
		if got := complete(t, n, "explain", beginning); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", beginning, got, want)
		}
	}
	if got := complete(t, n, "expl"); len(got) != 1 || !strings.HasPrefix(got[0], "explain") {
		t.Errorf("%q", got)
	}
	if got := complete(t, n, "kv", "get", "--st"); len(got) != 1 || !strings.HasPrefix(got[0], "--stale") {
		t.Errorf("%q", got)
	}
}

func TestCompletion_Insertable(t *testing.T) {
	for _, test := range []struct{ names, want []string }{
		{nil, nil}, {[]string{"a b"}, []string{"a b"}}, {[]string{"a b", "a c"}, nil}, {[]string{"a b", "ab"}, []string{"a b", "ab"}},
		{[]string{"\u00e4 1", "\u00e4 2"}, nil}, {[]string{"\u00e4", "\u00e5"}, []string{"\u00e4", "\u00e5"}}, {[]string{"~a", "~b"}, nil},
	} {
		if got := insertable(test.names); !slices.Equal(got, test.want) {
			t.Errorf("%q: %q, want %q", test.names, got, test.want)
		}
	}
}

// The scripts are of the shells that they are named after.
func TestCompletion_Scripts(t *testing.T) {
	n := member(t, "")
	for shell, contains := range map[string]string{"bash": "complete -o default", "zsh": "#compdef conclave", "fish": "complete -c conclave"} {
		script := must(t, n, "completion", shell)
		if !strings.Contains(script, contains) {
			t.Errorf("%s: no %q in\n%s", shell, contains, script)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%v: the script is not parsed", err)
			continue
		}
		cmd := exec.Command(path, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}

// Each command has a page with its flags, in which groff finds no fault.
func TestMan(t *testing.T) {
	n := member(t, "")
	dir := filepath.Join(t.TempDir(), "pages")
	must(t, n, "man", dir)
	groff, missing := exec.LookPath("groff")
	if missing != nil {
		t.Logf("%v: the pages are not formatted", missing)
	}
	pages := 0
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		path := filepath.Join(dir, pageName(c)+".1")
		text, err := os.ReadFile(path)
		must0(t, err)
		pages++
		shown := string(text)
		if missing == nil {
			cmd := exec.Command(groff, "-man", "-Tutf8", "-Kutf8", "-ww", "-P-cbou", path)
			var faults strings.Builder
			cmd.Stderr = &faults
			out, err := cmd.Output()
			must0(t, err)
			if faults.Len() > 0 {
				t.Errorf("%s: %s", path, &faults)
			}
			shown = string(out)
		}
		shown = strings.NewReplacer(`\-`, "-", "\u2010", "-", "\u2212", "-").Replace(shown)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(shown, "--"+f.Name) {
				t.Errorf("%s does not have --%s:\n%s", path, f.Name, shown)
			}
		})
		if !strings.Contains(shown, c.CommandPath()) {
			t.Errorf("%s:\n%s", path, shown)
		}
		for _, sub := range withPages(c) {
			check(sub)
		}
	}
	check(new(program).root())
	if pages < 30 {
		t.Errorf("%d pages", pages)
	}
	// A line of a text is none of the language.
	if got := roff(".so /etc/passwd \\n"); got != `\&.so /etc/passwd \en` {
		t.Error(got)
	}
}
