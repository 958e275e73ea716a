package consultest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// command is a command of a guide.
type command struct {
	section, line string // the line for a shell, with placeholders
	want          string // a regular expression, with placeholders
	set           [2]string
}

// guide parses the list of commands.
func guide(t *testing.T) []command {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "guides.txt"))
	must(t, err)
	var commands []command
	section := ""
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		mark, rest, _ := strings.Cut(lines[i], " ")
		switch mark {
		case "##":
			section = rest
		case ">":
			name, value, _ := strings.Cut(rest, " ")
			commands = append(commands, command{section: section, set: [2]string{name, value}})
		case "$":
			for strings.HasSuffix(rest, `\`) {
				i++
				rest += "\n" + lines[i]
			}
			commands = append(commands, command{section: section, line: rest})
		case "=":
			commands[len(commands)-1].want = rest
		case "#", "":
		default:
			t.Fatalf("testdata/guides.txt:%d: %q", i+1, lines[i])
		}
	}
	return commands
}

// fill replaces placeholders; quote is applied to each value.
func fill(text string, values map[string]string, quote func(string) string) string {
	for name, value := range values {
		text = strings.ReplaceAll(text, "<"+name+">", quote(value))
	}
	return text
}

// quoted is a word of a shell. What needs no quotes gets none.
func quoted(value string) string {
	if !strings.ContainsAny(value, `{}" `) {
		return value
	}
	return "'" + value + "'"
}

// expression is the regular expression of an answer, in which (name=...) is a group.
func expression(want string, values map[string]string) *regexp.Regexp {
	filled := fill(want, values, regexp.QuoteMeta)
	named := regexp.MustCompile(`\(([a-z-]+)=`).ReplaceAllStringFunc(filled, func(group string) string {
		return "(?P<" + strings.ReplaceAll(group[1:len(group)-1], "-", "_") + ">" // a group's name has no hyphen
	})
	return regexp.MustCompile(`(?s)^` + named + `$`)
}

// TestGuides runs the commands of Consul's guides, with curl and as they are printed: only curl's own
// configuration leads port 8500 to a handler.
func TestGuides(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("SKIPPED: curl is not installed, so the commands of Consul's guides were not tested")
	}
	a := start(t, 3)
	config := "silent\nshow-error\nmax-time = 60\nnoproxy = \"*\"\nconnect-to = \"localhost:8500:" + a.addr(0) + "\"\n"
	home := t.TempDir()
	must(t, os.WriteFile(filepath.Join(home, ".curlrc"), []byte(config), 0o600))
	values := map[string]string{
		"prefix": "service/dbservice/lock", "lock": "service/dbservice/lock/.lock", "key": "service/dbservice/leader", "body": "node-7",
		"Emptied Lock": `{"Limit": 3, "Holders": {}}`,
	}
	run := 0
	for _, c := range guide(t) {
		if c.line == "" {
			values[c.set[0]] = c.set[1]
			continue
		}
		if session := values["session"]; session != "" {
			values["Updated Lock"] = fmt.Sprintf(`{"Limit": 3, "Holders": {"%s": true}}`, session)
		}
		maps.Copy(values, execute(t, home, c, values))
		run++
	}
	if run < 20 {
		t.Errorf("%d commands, want at least 20", run)
	}
}

// execute runs one command, compares its answer, and returns the placeholders that the answer sets.
func execute(t *testing.T, home string, c command, values map[string]string) map[string]string {
	t.Helper()
	line := fill(c.line, values, quoted)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", line)
	shell.Env = append(os.Environ(), "CURL_HOME="+home)
	out, err := shell.CombinedOutput()
	answer := strings.TrimSpace(string(out))
	if err != nil {
		t.Fatalf("%s: %s: %v\n%s", c.section, line, err, answer)
	}
	want := expression(c.want, values)
	found := want.FindStringSubmatch(answer)
	if found == nil {
		t.Fatalf("%s: %s\nanswer: %s\nwant:   %s", c.section, line, answer, want)
	}
	set := make(map[string]string)
	for i, name := range want.SubexpNames() {
		if name != "" {
			set[strings.ReplaceAll(name, "_", "-")] = found[i]
		}
	}
	return set
}
